//! The provider's protocol, by `object_store`.

use crate::address::{Address, Place};
use crate::client::Connector;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::signer::Signer;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, Result, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// Tries to reach a server are limited by time before this number is reached: the pauses between them are 0.1 s at least.
const RETRIES_MAX: usize = 1000;

/// One client of a bucket, by the interfaces that it has.
#[derive(Clone)]
pub(crate) struct Backend {
    pub objects: Arc<dyn ObjectStore>,
    pub pages: Arc<dyn PaginatedListStore>,
    pub signer: Arc<dyn Signer>,
    /// Uploads in parts, with checksums where the protocol has them.
    pub parts: Arc<dyn MultipartStore>,
    /// Uploads in parts whose content comes from others, and without checksums.
    pub plain_parts: Arc<dyn MultipartStore>,
    /// For requests that are not in the interfaces; they have presigned URLs.
    pub http: HttpClient,
}

impl Backend {
    pub fn open(address: &Address) -> Result<Backend> {
        let options = &address.options;
        let connector = || Connector {
            tls: address.tls.clone(),
            connect_max: options.patience / 4,
            silence_max: options.patience / 2,
        };
        let client_options = ClientOptions::new().with_allow_http(options.allows_http);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: options.patience / 8,
                base: 2.0,
            },
            max_retries: RETRIES_MAX,
            // The last try and the pause before it end within the patience.
            retry_timeout: options.patience / 2,
        };
        let http = connector().connect(&client_options)?;
        match &address.place {
            Place::S3 { bucket } => {
                let mut builder = AmazonS3Builder::new()
                    .with_bucket_name(bucket)
                    .with_http_connector(connector())
                    .with_client_options(client_options)
                    .with_retry(retry)
                    // Not every server has the request that removes many.
                    .with_disable_bulk_delete(true);
                if let Some(endpoint) = &options.endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                if let Some(region) = &options.region {
                    builder = builder.with_region(region);
                }
                if let Some(credentials) = &options.credentials {
                    builder = builder
                        .with_access_key_id(&credentials.key_id)
                        .with_secret_access_key(&credentials.secret);
                    if let Some(token) = &credentials.token {
                        builder = builder.with_token(token);
                    }
                }
                let plain = builder.clone().build()?;
                let checked = builder.with_checksum_algorithm(Checksum::SHA256).build()?;
                Ok(Backend { plain_parts: Arc::new(plain), ..Backend::of(checked, http) })
            }
            Place::Google { bucket } => {
                let mut builder = GoogleCloudStorageBuilder::new()
                    .with_bucket_name(bucket)
                    .with_http_connector(connector())
                    .with_client_options(client_options)
                    .with_retry(retry);
                if let Some(endpoint) = &options.endpoint {
                    builder = builder.with_base_url(endpoint);
                }
                if let Some(credentials) = &options.credentials {
                    builder = builder.with_service_account_key(&credentials.secret);
                }
                Ok(Backend::of(builder.build()?, http))
            }
            Place::Azure { account, container } => {
                let mut builder = MicrosoftAzureBuilder::new()
                    .with_account(account)
                    .with_container_name(container)
                    .with_http_connector(connector())
                    .with_client_options(client_options)
                    .with_retry(retry);
                if let Some(endpoint) = &options.endpoint {
                    builder = builder.with_endpoint(endpoint.clone());
                }
                if let Some(credentials) = &options.credentials {
                    builder = builder.with_access_key(&credentials.secret);
                }
                Ok(Backend::of(builder.build()?, http))
            }
        }
    }

    fn of<S>(store: S, http: HttpClient) -> Backend
    where
        S: ObjectStore + PaginatedListStore + Signer + MultipartStore,
    {
        let store = Arc::new(store);
        Backend {
            objects: store.clone(),
            pages: store.clone(),
            signer: store.clone(),
            parts: store.clone(),
            plain_parts: store,
            http,
        }
    }
}
