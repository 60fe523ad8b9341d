use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};
use futures::TryStreamExt;
use std::env::var;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let endpoint: AccountEndpoint = var("COSMOS_ENDPOINT")?.parse()?;
    let account = AccountReference::with_authentication_key(endpoint, Secret::from(var("COSMOS_KEY")?));
    let near = RoutingStrategy::ProximityTo("South Central US".into());
    let client = CosmosClient::builder().build(account, near).await?;
    let databases: Vec<_> = client.query_databases("SELECT * FROM c", None).await?.try_collect().await?;
    println!("{} databases", databases.len());
    Ok(())
}
