//! 64-bit x86, decoded instruction by instruction.

use crate::{Found, Hazard};
use iced_x86::{Code, CpuidFeature, Decoder, DecoderOptions, Instruction};

/// The instructions before and after one that have to be valid for it to be believed.
const NEIGHBOURS: usize = 4;

pub(crate) fn search(code: &[u8], found: &mut Found) {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    // Valid instructions since the last invalid one.
    let mut valid = 0;
    // What was found among the last instructions, by how many valid ones have to follow.
    let mut waiting: Vec<(usize, Hazard, CpuidFeature)> = Vec::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            valid = 0;
            waiting.clear();
            continue;
        }
        valid += 1;
        if !waiting.is_empty() {
            for (left, hazard, feature) in &mut waiting {
                *left -= 1;
                if *left == 0 {
                    record(*hazard, *feature, found);
                }
            }
            waiting.retain(|(left, ..)| *left > 0);
        }
        if instruction.code() == Code::Cpuid {
            found.asks_processor = true;
        }
        if let Some((hazard, feature)) = hazard(&instruction)
            && valid > NEIGHBOURS
        {
            waiting.push((NEIGHBOURS, hazard, feature));
        }
    }
    // The end of a section is the end of code.
    for (_, hazard, feature) in waiting {
        record(hazard, feature, found);
    }
}

fn record(hazard: Hazard, feature: CpuidFeature, found: &mut Found) {
    found.count(hazard, 1);
    if hazard == Hazard::X86Extension {
        *found.extensions.entry(format!("{feature:?}")).or_default() += 1;
    }
}

/// The highest level that an instruction needs.
fn hazard(instruction: &Instruction) -> Option<(Hazard, CpuidFeature)> {
    let features = instruction.code().cpuid_features();
    let of = |feature: &CpuidFeature| Some((level(*feature, instruction)?, *feature));
    features.iter().filter_map(of).max_by_key(|(hazard, _)| *hazard)
}

/// The level of a feature (x86-64 psABI, table 3.1). `None` for the baseline, and for what older processors execute
/// as something harmless.
fn level(feature: CpuidFeature, instruction: &Instruction) -> Option<Hazard> {
    use CpuidFeature as F;
    Some(match feature {
        F::SSE3 | F::SSSE3 | F::SSE4_1 | F::SSE4_2 | F::POPCNT | F::CMPXCHG16B => Hazard::X86V2,
        // TZCNT is executed as BSF, with the same result unless all bits are zero: compilers use it everywhere.
        F::BMI1
            if matches!(
                instruction.code(),
                Code::Tzcnt_r16_rm16 | Code::Tzcnt_r32_rm32 | Code::Tzcnt_r64_rm64
            ) =>
        {
            return None;
        }
        F::AVX | F::AVX2 | F::BMI1 | F::BMI2 | F::F16C | F::FMA | F::LZCNT | F::MOVBE => Hazard::X86V3,
        F::AVX512F | F::AVX512BW | F::AVX512CD | F::AVX512DQ | F::AVX512VL => Hazard::X86V4,
        F::AES
        | F::PCLMULQDQ
        | F::SHA
        | F::RDRAND
        | F::RDSEED
        | F::ADX
        | F::FMA4
        | F::XOP
        | F::TBM
        | F::SSE4A
        | F::GFNI
        | F::VAES
        | F::VPCLMULQDQ
        | F::AVX_VNNI
        | F::AVX512_IFMA
        | F::AVX512_VBMI
        | F::AVX512_VBMI2
        | F::AVX512_VNNI
        | F::AVX512_BITALG
        | F::AVX512_VPOPCNTDQ
        | F::AVX512_BF16
        | F::AVX512_FP16
        | F::RTM
        | F::MOVDIRI
        | F::MOVDIR64B
        | F::AMX_TILE => Hazard::X86Extension,
        _ => return None,
    })
}
