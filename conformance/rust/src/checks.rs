//! What a program does with the SDK. Each check has items of its own.

use crate::Outcome;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::{
    BatchOptions, ChangeFeedOptions, ChangeFeedStartFrom, ContentResponseOnWrite, ItemWriteOptions, MaxItemCountHint,
    OperationOptions, Precondition, QueryOptions,
};
use azure_data_cosmos::{CosmosClient, FeedScope, Query, TransactionalBatch};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

const BINARY: u8 = 0x80; // first byte of binary JSON
const PAGES: usize = 50; // at most, until a change feed has ended

/// An item with every kind of value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Item {
    id: String,
    city: String,
    text: String,
    long: String,
    small: i64,
    wide: i64,
    huge: u64,
    ratio: f64,
    whole: f64,
    yes: bool,
    nothing: Option<String>,
    list: Vec<i64>,
    nested: Vec<Nested>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Nested {
    name: String,
    values: Vec<f64>,
}

fn item(id: &str, city: &str, small: i64) -> Item {
    Item {
        id: id.into(),
        city: city.into(),
        text: "caf\u{e9} \u{2603} \u{1d11e} \"quoted\" \\ \n \u{2028}".into(),
        long: "x".repeat(70_000),
        small,
        wide: -9_007_199_254_740_993,
        huge: u64::MAX,
        ratio: 0.1,
        whole: 2.0,
        yes: true,
        nothing: None,
        list: (0..300).collect(),
        nested: vec![
            Nested { name: "a".into(), values: vec![] },
            Nested { name: String::new(), values: vec![1.5, -0.25, 1e300] },
        ],
    }
}

/// Lets a check fail with a sentence.
fn expect(holds: bool, what: impl Into<String>) -> Outcome {
    if holds {
        return Ok(());
    }
    Err(what.into().into())
}

/// Makes a write answer with the item.
fn answering() -> ItemWriteOptions {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    ItemWriteOptions::default().with_operation_options(operation)
}

/// Runs all checks in order, and returns how many failed.
pub async fn run_all(client: &CosmosClient) -> Result<usize, Box<dyn std::error::Error>> {
    client.create_database("shop", None).await?;
    let database = client.database_client("shop");
    database.create_container(ContainerProperties::new("orders", "/city".into()), None).await?;
    let orders = database.container_client("orders", None).await?;
    let (mut passed, mut failed) = (0, 0);
    let mut note = |name: &str, outcome: Outcome| match outcome {
        Ok(()) => passed += 1,
        Err(err) => {
            failed += 1;
            println!("FAIL {name}: {err}");
        }
    };
    note("items are written and read in binary", items(&orders).await);
    note("writes are conditional", conditions(&orders).await);
    note("errors keep their status", errors(&orders).await);
    note("a query of one key", query_of_a_key(&orders).await);
    note("a query of all keys, in pages", query_of_all_keys(&orders).await);
    note("a sorted query of all keys", sorted_query(&orders).await);
    note("a query is continued by a token", continued_query(&orders).await);
    note("a batch is done as a whole", batch(&orders).await);
    note("the change feed", change_feed(&orders).await);
    println!("{passed} passed, {failed} failed");
    Ok(failed)
}

async fn items(orders: &ContainerClient) -> Outcome {
    let mut wanted = item("1", "London", 7);
    let created = orders.create_item("London", "1", &wanted, Some(answering())).await?.into_body().single()?;
    expect(created[0] == BINARY, format!("the answer to a create begins with {:#04x}", created[0]))?;
    let read = orders.read_item("London", "1", None).await?.into_body().single()?;
    expect(read[0] == BINARY, format!("the answer to a read begins with {:#04x}", read[0]))?;
    let got: Item = orders.read_item("London", "1", None).await?.into_model()?;
    expect(got == wanted, format!("read {got:?}"))?;
    wanted.small = 31;
    let got: Item = orders.upsert_item("London", "1", &wanted, Some(answering())).await?.into_body().into_single()?;
    expect(got == wanted, format!("upserted {got:?}"))?;
    wanted.list.clear();
    let got: Item = orders.replace_item("London", "1", &wanted, Some(answering())).await?.into_body().into_single()?;
    expect(got == wanted, format!("replaced by {got:?}"))?;
    let document: serde_json::Value = orders.read_item("London", "1", None).await?.into_model()?;
    expect(document["_etag"].is_string() && document["_ts"].is_u64(), format!("no system properties in {document}"))?;
    orders.delete_item("London", "1", None).await?;
    expect(orders.read_item("London", "1", None).await.is_err(), "the item is there after its delete")
}

async fn conditions(orders: &ContainerClient) -> Outcome {
    let wanted = item("2", "Oslo", 1);
    let created = orders.create_item("Oslo", "2", &wanted, None).await?;
    let etag = created.headers().etag().ok_or("a create has no ETag")?.clone();
    orders.upsert_item("Oslo", "2", &wanted, None).await?;
    let options = ItemWriteOptions::default().with_precondition(Precondition::if_match(etag));
    match orders.replace_item("Oslo", "2", &wanted, Some(options)).await {
        Ok(_) => Err("a replace with an old ETag succeeded".into()),
        Err(err) => expect(err.status().is_precondition_failed(), format!("a replace with an old ETag: {err}")),
    }
}

async fn errors(orders: &ContainerClient) -> Outcome {
    let wanted = item("3", "Rome", 1);
    orders.create_item("Rome", "3", &wanted, None).await?;
    let conflict = match orders.create_item("Rome", "3", &wanted, None).await {
        Ok(_) => return Err("an item was created twice".into()),
        Err(err) => u16::from(err.status().status_code()),
    };
    let missing = match orders.read_item("Rome", "none", None).await {
        Ok(_) => return Err("a missing item was read".into()),
        Err(err) => u16::from(err.status().status_code()),
    };
    expect((conflict, missing) == (409, 404), format!("a second create is {conflict}, a missing item {missing}"))
}

/// Writes items with the ids q0, q1, … over three keys, so that `small` counts down.
async fn fill(orders: &ContainerClient, count: i64) -> Outcome {
    for i in 0..count {
        let city = format!("city{}", i % 3);
        let id = format!("q{i}");
        orders.upsert_item(city.clone(), &id, &item(&id, &city, count - i), None).await?;
    }
    Ok(())
}

async fn query_of_a_key(orders: &ContainerClient) -> Outcome {
    fill(orders, 30).await?;
    let query = Query::from("SELECT * FROM c WHERE c.small > @least").with_parameter("@least", 12)?;
    let rows: Vec<Item> = orders.query_items::<Item>(query, FeedScope::partition("city0"), None).await?.try_collect().await?;
    expect(rows.len() == 6, format!("{} rows of one key: want 6", rows.len()))?;
    expect(rows[0] == item("q0", "city0", 30), format!("the first row is {:?}", rows[0]))?;
    let query = Query::from("SELECT VALUE COUNT(1) FROM c");
    let counts: Vec<i64> = orders.query_items::<i64>(query, FeedScope::partition("city1"), None).await?.try_collect().await?;
    expect(counts == [10], format!("COUNT is {counts:?}: want 10"))
}

async fn query_of_all_keys(orders: &ContainerClient) -> Outcome {
    let query = Query::from("SELECT c.id, c.small FROM c WHERE STARTSWITH(c.id, 'q')");
    let options = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(7).unwrap()));
    let mut pages = orders
        .query_items::<serde_json::Value>(query, FeedScope::full_container(), Some(options))
        .await?
        .into_pages();
    let (mut rows, mut count) = (0, 0);
    while let Some(page) = pages.try_next().await? {
        rows += page.items().len();
        count += 1;
        expect(page.items().len() <= 7, format!("a page of {} rows", page.items().len()))?;
    }
    expect(rows == 30 && count >= 5, format!("{rows} rows in {count} pages: want 30 in 5 or more"))
}

async fn sorted_query(orders: &ContainerClient) -> Outcome {
    let query = Query::from("SELECT * FROM c WHERE STARTSWITH(c.id, 'q') ORDER BY c.small");
    let rows: Vec<Item> = orders.query_items::<Item>(query, FeedScope::full_container(), None).await?.try_collect().await?;
    let order: Vec<i64> = rows.iter().map(|row| row.small).collect();
    expect(order == (1..=30).collect::<Vec<i64>>(), format!("sorted rows are {order:?}"))
}

async fn continued_query(orders: &ContainerClient) -> Outcome {
    let mut rows = Vec::new();
    let mut token = None;
    loop {
        let query = Query::from("SELECT VALUE c.id FROM c WHERE STARTSWITH(c.id, 'q')");
        let mut options = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(11).unwrap()));
        if let Some(token) = token.take() {
            options = options.with_continuation_token(token);
        }
        let mut pages =
            orders.query_items::<String>(query, FeedScope::full_container(), Some(options)).await?.into_pages();
        let Some(page) = pages.try_next().await? else { break };
        rows.extend(page.into_items());
        if rows.len() >= 30 {
            break;
        }
        token = Some(pages.to_continuation_token()?);
    }
    rows.sort();
    rows.dedup();
    expect(rows.len() == 30, format!("{} rows by tokens: want 30", rows.len()))
}

async fn batch(orders: &ContainerClient) -> Outcome {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    let options = BatchOptions::default().with_operation_options(operation);
    let first = item("b1", "Bern", 1);
    let all = TransactionalBatch::new("Bern")
        .create_item(&first)?
        .upsert_item(item("b2", "Bern", 2), None)?
        .read_item("b1", None)
        .delete_item("b2", None);
    let done = orders.execute_transactional_batch(all, Some(options)).await?.into_model()?;
    let statuses: Vec<u16> = done.results().iter().map(|result| result.status_code()).collect();
    expect(statuses == [201, 201, 200, 204], format!("statuses of a batch are {statuses:?}"))?;
    let read: Option<Item> = done.results()[2].into_model()?;
    expect(read == Some(first.clone()), format!("a batch reads {read:?}"))?;
    let refused = TransactionalBatch::new("Bern").create_item(item("b3", "Bern", 3))?.create_item(&first)?;
    let statuses: Vec<u16> = match orders.execute_transactional_batch(refused, None).await {
        Ok(done) => done.into_model()?.results().iter().map(|result| result.status_code()).collect(),
        Err(err) => vec![u16::from(err.status().status_code())],
    };
    expect(statuses == [424, 409] || statuses == [409], format!("statuses of a refused batch are {statuses:?}"))?;
    expect(orders.read_item("Bern", "b3", None).await.is_err(), "a refused batch has written an item")
}

async fn change_feed(orders: &ContainerClient) -> Outcome {
    let mut pages =
        orders.query_change_feed::<Item>(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, None).await?;
    let mut seen = Vec::new();
    for _ in 0..PAGES {
        let Some(page) = pages.next().await else { break };
        let page = page?;
        if page.items().is_empty() {
            break;
        }
        seen.extend(page.items().iter().filter_map(|change| change.current().map(|item| item.id.clone())));
    }
    seen.retain(|id| id.starts_with('q'));
    expect(seen.len() == 30, format!("{} items in the change feed: want 30", seen.len()))?;
    let token = pages.to_continuation_token()?;
    orders.upsert_item("city0", "q0", &item("q0", "city0", 99), None).await?;
    let options = ChangeFeedOptions::default().with_continuation_token(token);
    let mut pages = orders
        .query_change_feed::<Item>(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, Some(options))
        .await?;
    for _ in 0..PAGES {
        let Some(page) = pages.next().await else { break };
        let page = page?;
        if let Some(change) = page.items().first() {
            let small = change.current().map(|item| item.small);
            return expect(page.items().len() == 1 && small == Some(99), format!("{small:?} after the token"));
        }
    }
    Err("no change after the token".into())
}
