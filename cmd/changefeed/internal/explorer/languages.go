package explorer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Programs for the present view, each with the SDK of Azure Cosmos DB for the language; the feed in Go with this
// module. Endpoint and key are in the environment.

// isText reports whether a value of JSON is a text, which is a literal in each language.
func isText(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

// textOf is the literal of a value that is a text.
func textOf(value json.RawMessage) string {
	var text string
	_ = json.Unmarshal(value, &text) // isText has said so
	return quoted(text)
}

// valueIn is a value in a language, in which a word parses JSON.
func valueIn(value json.RawMessage, parse string) string {
	if isText(value) {
		return textOf(value)
	}
	return parse + "(" + quoted(string(value)) + ")"
}

// golang is a program in Go.
func (v view) golang() string {
	if v.kind == "feed" {
		return v.golangFeed()
	}
	var b strings.Builder
	b.WriteString(`// import "github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
key, err := azcosmos.NewKeyCredential(os.Getenv("COSMOS_KEY"))
if err != nil {
	return err
}
client, err := azcosmos.NewClientWithKey(os.Getenv("COSMOS_ENDPOINT"), key, nil)
if err != nil {
	return err
}
`)
	fmt.Fprintf(&b, "container, err := client.NewContainer(%s, %s)\nif err != nil {\n\treturn err\n}\n",
		quoted(v.at.Database), quoted(v.at.Container))
	b.WriteString("partition := azcosmos.NewPartitionKey()")
	for _, part := range v.parts() {
		switch {
		case isText(part):
			b.WriteString(".AppendString(" + textOf(part) + ")")
		case string(part) == "null":
			b.WriteString(".AppendNull()")
		case string(part) == "true" || string(part) == "false":
			b.WriteString(".AppendBool(" + string(part) + ")")
		default:
			b.WriteString(".AppendNumber(" + string(part) + ")")
		}
	}
	b.WriteString("\n")
	if v.kind == "item" {
		fmt.Fprintf(&b,
			"got, err := container.ReadItem(ctx, partition, %s, nil)\nif err != nil {\n\treturn err\n}\n"+
				"fmt.Println(string(got.Value))\n", quoted(v.id))
		return b.String()
	}
	b.WriteString("options := &azcosmos.QueryOptions{QueryParameters: []azcosmos.QueryParameter{\n")
	for _, p := range v.query.Parameters {
		fmt.Fprintf(&b, "\t{Name: %s, Value: %s},\n", quoted(p.Name), valueIn(p.Value, "json.RawMessage"))
	}
	fmt.Fprintf(&b, `}}
for pages := container.NewQueryItemsPager(%s, partition, options); pages.More(); {
	page, err := pages.NextPage(ctx)
	if err != nil {
		return err
	}
	for _, row := range page.Items {
		fmt.Println(string(row))
	}
}
`, quoted(v.query.Text))
	return b.String()
}

// golangFeed is a program in Go that follows the feed.
func (v view) golangFeed() string {
	from, mode := "FromNow", "LatestVersion"
	if v.from == "beginning" {
		from = "FromBeginning"
	}
	if v.isAll {
		mode = "AllVersionsAndDeletes"
	}
	return fmt.Sprintf(`// import "github.com/millrace/changefeed", its packages cosmos and feed
client, err := cosmos.Open(ctx, os.Getenv("COSMOS_ENDPOINT"), cosmos.Key(os.Getenv("COSMOS_KEY")), cosmos.Options{})
if err != nil {
	return err
}
defer client.Close()
container, err := client.Container(ctx, %s, %s)
if err != nil {
	return err
}
from := feed.Position{Start: feed.%s()}
options := changefeed.PullOptions{ReadOptions: feed.ReadOptions{Mode: feed.%s}, Follow: true}
for page, err := range changefeed.Pull(ctx, container, feed.FullRange(), from, options) {
	if err != nil {
		return err
	}
	for _, c := range page.Changes {
		fmt.Println(c.Op, string(c.Body))
	}
}
`, quoted(v.at.Database), quoted(v.at.Container), from, mode)
}

// csharp is a program in C#.
func (v view) csharp() string {
	var b strings.Builder
	b.WriteString(`// dotnet add package Microsoft.Azure.Cosmos
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

using var client = new CosmosClient(
    Environment.GetEnvironmentVariable("COSMOS_ENDPOINT"), Environment.GetEnvironmentVariable("COSMOS_KEY"));
`)
	fmt.Fprintf(&b, "var container = client.GetContainer(%s, %s);\n", quoted(v.at.Database), quoted(v.at.Container))
	partition := v.csharpKey()
	switch v.kind {
	case "item":
		fmt.Fprintf(&b,
			"JObject item = await container.ReadItemAsync<JObject>(%s, %s);\nConsole.WriteLine(item);\n",
			quoted(v.id), partition)
		return b.String()
	case "feed":
		from, mode := "Now", "LatestVersion"
		if v.from == "beginning" {
			from = "Beginning"
		}
		if v.isAll {
			mode = "AllVersionsAndDeletes"
		}
		fmt.Fprintf(&b, `using var feed = container.GetChangeFeedIterator<JObject>(
    ChangeFeedStartFrom.%s(), ChangeFeedMode.%s);
while (feed.HasMoreResults)
{
    var page = await feed.ReadNextAsync();
    if (page.StatusCode == System.Net.HttpStatusCode.NotModified) await Task.Delay(1000);
    else foreach (var change in page) Console.WriteLine(change);
}
`, from, mode)
		return b.String()
	}
	fmt.Fprintf(&b, "var query = new QueryDefinition(%s)", quoted(v.query.Text))
	for _, p := range v.query.Parameters {
		fmt.Fprintf(&b, "\n    .WithParameter(%s, %s)", quoted(p.Name), valueIn(p.Value, "JToken.Parse"))
	}
	options := ""
	if v.query.Key != "" {
		options = ", requestOptions: new QueryRequestOptions { PartitionKey = " + partition + " }"
	}
	fmt.Fprintf(&b, ";\nusing var pages = container.GetItemQueryIterator<JToken>(query%s);\n", options)
	b.WriteString("while (pages.HasMoreResults)\n    foreach (var row in await pages.ReadNextAsync()) Console.WriteLine(row);\n")
	return b.String()
}

// csharpKey is the partition key in C#.
func (v view) csharpKey() string {
	var partition strings.Builder
	partition.WriteString("new PartitionKeyBuilder()")
	for _, part := range v.parts() {
		switch {
		case isText(part):
			partition.WriteString(".Add(" + textOf(part) + ")")
		case string(part) == "null":
			partition.WriteString(".AddNullValue()")
		case string(part) == "{}":
			partition.WriteString(".AddNoneType()")
		default:
			partition.WriteString(".Add(" + string(part) + ")")
		}
	}
	return partition.String() + ".Build()"
}

// javascript is a program in JavaScript.
func (v view) javascript() string {
	var b strings.Builder
	b.WriteString("// npm install @azure/cosmos\nimport { ChangeFeedMode, ChangeFeedStartFrom, CosmosClient } from '@azure/cosmos';\n\n" +
		"const client = new CosmosClient({ endpoint: process.env.COSMOS_ENDPOINT, key: process.env.COSMOS_KEY });\n")
	fmt.Fprintf(&b, "const container = client.database(%s).container(%s);\n", quoted(v.at.Database),
		quoted(v.at.Container))
	var parts []string
	for _, part := range v.parts() {
		parts = append(parts, valueIn(part, "JSON.parse"))
	}
	partition := "[" + strings.Join(parts, ", ") + "]"
	switch v.kind {
	case "item":
		fmt.Fprintf(&b, "const { resource } = await container.item(%s, %s).read();\nconsole.log(resource);\n",
			quoted(v.id),
			partition)
		return b.String()
	case "feed":
		from, mode := "Now", "LatestVersion"
		if v.from == "beginning" {
			from = "Beginning"
		}
		if v.isAll {
			mode = "AllVersionsAndDeletes"
		}
		fmt.Fprintf(&b, `const feed = container.items.getChangeFeedIterator({
  changeFeedStartFrom: ChangeFeedStartFrom.%s(), changeFeedMode: ChangeFeedMode.%s,
});
for await (const page of feed.getAsyncIterator()) {
  if (page.result.length === 0) await new Promise((resolve) => setTimeout(resolve, 1000));
  for (const change of page.result) console.log(change);
}
`, from, mode)
		return b.String()
	}
	fmt.Fprintf(&b, "const query = { query: %s, parameters: [\n", quoted(v.query.Text))
	for _, p := range v.query.Parameters {
		fmt.Fprintf(&b, "  { name: %s, value: %s },\n", quoted(p.Name), valueIn(p.Value, "JSON.parse"))
	}
	options := ""
	if v.query.Key != "" {
		options = ", { partitionKey: " + partition + " }"
	}
	fmt.Fprintf(&b,
		"] };\nfor await (const { resources } of container.items.query(query%s).getAsyncIterator()) {\n"+
			"  for (const row of resources) console.log(row);\n}\n", options)
	return b.String()
}

// python is a program in Python.
func (v view) python() string {
	var b strings.Builder
	b.WriteString(`# pip install azure-cosmos
import json, os
from azure.cosmos import CosmosClient

client = CosmosClient(os.environ["COSMOS_ENDPOINT"], os.environ["COSMOS_KEY"])
`)
	fmt.Fprintf(&b, "container = client.get_database_client(%s).get_container_client(%s)\n", quoted(v.at.Database),
		quoted(v.at.Container))
	partition := "json.loads(" + quoted(string(v.query.Key)) + ")"
	if parts := v.parts(); len(parts) == 1 {
		partition = valueIn(parts[0], "json.loads")
	}
	switch v.kind {
	case "item":
		fmt.Fprintf(&b, "print(json.dumps(container.read_item(%s, partition_key=%s)))\n", quoted(v.id), partition)
		return b.String()
	case "feed":
		from, mode := "Now", "LatestVersion"
		if v.from == "beginning" {
			from = "Beginning"
		}
		if v.isAll {
			mode = "AllVersionsAndDeletes"
		}
		fmt.Fprintf(&b, "for change in container.query_items_change_feed(start_time=%q, mode=%q):\n"+
			"    print(json.dumps(change))\n", from, mode)
		return b.String()
	}
	fmt.Fprintf(&b, "rows = container.query_items(\n    %s,\n    parameters=[\n", quoted(v.query.Text))
	for _, p := range v.query.Parameters {
		fmt.Fprintf(&b, "        {\"name\": %s, \"value\": %s},\n", quoted(p.Name), valueIn(p.Value, "json.loads"))
	}
	scope := "enable_cross_partition_query=True"
	if v.query.Key != "" {
		scope = "partition_key=" + partition
	}
	fmt.Fprintf(&b, "    ],\n    %s,\n)\nfor row in rows:\n    print(json.dumps(row))\n", scope)
	return b.String()
}
