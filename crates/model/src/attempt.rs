//! The random id of a build, in addition to its number.
//!
//! A build's number is for users: it is short, and increases within one store. But a store that is restored from a
//! backup uses the same numbers again, so a number cannot identify the build of a late result. An attempt can: it is
//! random, and is never used twice, whatever happens to the store.

use crate::random_id::random_id;

random_id! {
    /// The id of one build: 128 random bits. As text and in JSON it is 32 hexadecimal digits. A worker that could
    /// guess the attempts of others could end their builds.
    Attempt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_id::NotAnId;

    #[test]
    fn an_attempt_has_one_text() {
        let text = "000102030405060708090a0b0c0d0e0f";
        let attempt = Attempt::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!((attempt.to_string().as_str(), Attempt::parse(text)), (text, Ok(attempt)));
        assert_eq!(serde_json::to_string(&attempt).unwrap(), format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Attempt>(&format!("\"{text}\"")).unwrap(), attempt);
        let capitals = text.to_uppercase();
        let sign = format!("+{}", &text[1..]);
        for other in ["", &text[1..], &capitals, &sign, " 00102030405060708090a0b0c0d0e0f", "ü"] {
            assert_eq!(Attempt::parse(other), Err(NotAnId), "{other}");
        }
        let error = serde_json::from_str::<Attempt>("\"1\"").unwrap_err().to_string();
        assert!(error.contains("32 hexadecimal digits"), "{error}");
    }
}
