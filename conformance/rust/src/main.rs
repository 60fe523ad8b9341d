//! Runs the Rust SDK, unmodified and with its default options, against this server: starts `changefeed serve` with a new
//! store and a certificate of its own, does what a program does, and stops the server.
//!
//!     cargo run -- PATH-OF-CHANGEFEED DIRECTORY
//!
//! The SDK writes items in Cosmos binary JSON, and wants items and query pages in the same format. The last line is such
//! as "9 passed, 0 failed". The status is 1 unless every check passed.

mod checks;
mod server;

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, RoutingStrategy};
use std::error::Error;
use std::process::ExitCode;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, binary, dir] = args.as_slice() else {
        eprintln!("usage: changefeed-conformance PATH-OF-CHANGEFEED DIRECTORY");
        return ExitCode::from(2);
    };
    match run(binary, dir) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(err) => {
            let mut cause: Option<&dyn Error> = Some(err.as_ref());
            while let Some(err) = cause {
                eprintln!("{err:?}");
                cause = err.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs all checks, and returns how many failed.
fn run(binary: &str, dir: &str) -> Result<usize, Box<dyn Error>> {
    let server = server::Server::start(binary, dir)?;
    // The one thing that a client of a server with a certificate of its own must be told. The environment is set before
    // any thread reads it.
    std::env::set_var("SSL_CERT_FILE", &server.certificate);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let failed = runtime.block_on(async {
        let endpoint: AccountEndpoint = server.endpoint.parse()?;
        let account = AccountReference::with_authentication_key(endpoint, Secret::from(server.key.clone()));
        let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo("East US".into())).await?;
        checks::run_all(&client).await
    })?;
    let snippet = run_snippet(&server);
    server.stop()?;
    snippet?;
    Ok(failed)
}

/// Runs the snippet of docs/server.md, which is a program of its own (bin/snippet.rs), as its reader would.
fn run_snippet(server: &server::Server) -> Outcome {
    let program = std::env::current_exe()?.with_file_name("snippet");
    let output = std::process::Command::new(program)
        .env("COSMOS_ENDPOINT", &server.endpoint)
        .env("COSMOS_KEY", &server.key)
        .output()?;
    if output.stdout != b"1 databases\n" {
        return Err(format!("the snippet prints {output:?}, want 1 databases").into());
    }
    Ok(())
}
