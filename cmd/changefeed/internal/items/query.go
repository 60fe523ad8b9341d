package items

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A Query is a query of the documents of a container.
type Query struct {
	Text       string
	Parameters []Parameter
	Key        feed.PartitionKey // only this partition key; empty is all
	Max        int               // rows at most; 0 is no limit
}

// A Parameter is a parameter of a query.
type Parameter struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// ParseParameter reads name=value. The name may begin with @. A value that is no JSON is a text.
func ParseParameter(text string) (Parameter, error) {
	name, value, ok := strings.Cut(text, "=")
	name = strings.TrimPrefix(name, "@")
	if !ok || name == "" || strings.ContainsAny(name, " \t@") {
		return Parameter{}, usage.Flag("param", text, `name=value, such as city=Oslo, n=5, n='"5"' or tags='["a","b"]'`)
	}
	p := Parameter{Name: "@" + name, Value: json.RawMessage(value)}
	if !json.Valid(p.Value) {
		p.Value = rawjson.AppendString(nil, value)
	}
	return p, nil
}

// A Bill is the cost of a query.
type Bill struct {
	Rows    int
	Pages   int
	Charge  float64 // request units
	Elapsed time.Duration
}

// Run runs a query, page by page, and passes each row to write. The bill is valid even after an error.
func (t *Target) Run(ctx context.Context, q Query, write func(row json.RawMessage) error) (bill Bill, err error) {
	if q.Key != "" {
		if err := t.checkKey(q.Key); err != nil {
			return bill, err
		}
	}
	if err := q.checkParameters(); err != nil {
		return bill, err
	}
	begun := time.Now()
	defer func() { bill.Elapsed = time.Since(begun) }()
	request, err := t.queryRequest(q)
	if err != nil {
		return bill, err
	}
	for pages := (place.Pages{}); ; {
		before := bill.Rows
		reply, err := t.page(ctx, request)
		if err != nil {
			return bill, err
		}
		bill.Pages++
		if charge := reply.Charge(); charge != nil {
			bill.Charge += *charge
		}
		if err := t.checkPage(reply.Body); err != nil {
			return bill, err
		}
		for row := range rawjson.Elements(rawjson.Lookup(reply.Body, "Documents")) {
			if q.Max > 0 && bill.Rows == q.Max {
				return bill, nil
			}
			if err := write(row); err != nil {
				return bill, err
			}
			bill.Rows++
		}
		next := reply.Header.Get("X-Ms-Continuation")
		if next == "" || q.Max > 0 && bill.Rows == q.Max {
			return bill, nil
		}
		if err := pages.Next(next, bill.Rows-before); err != nil {
			return bill, err
		}
		request.Header["X-Ms-Continuation"] = next
	}
}

// checkPage refuses a page whose number of rows is another than the page says.
func (t *Target) checkPage(page []byte) error {
	rows := 0
	for range rawjson.Elements(rawjson.Lookup(page, "Documents")) {
		rows++
	}
	if count := string(rawjson.Lookup(page, "_count")); count != strconv.Itoa(rows) {
		return fmt.Errorf("the answer to the query has %s, and its _count is %s: is %s an account of Azure Cosmos DB or "+
			"changefeed serve?", terminal.Count(rows, "row"), pkey.Show([]byte(count)), t.account.Endpoint)
	}
	return nil
}

// The texts of a query that are no parameters, and those that are.
var (
	quotedText = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"`)
	parameter  = regexp.MustCompile(`@[A-Za-z_][A-Za-z0-9_]*`)
)

// checkParameters refuses a query with a parameter that has no value: an undefined parameter would find nothing.
func (q Query) checkParameters() error {
	for _, name := range parameter.FindAllString(quotedText.ReplaceAllString(q.Text, "''"), -1) {
		if !slices.ContainsFunc(q.Parameters, func(p Parameter) bool { return p.Name == name }) {
			return usage.Error{Err: fmt.Errorf("%s has no value: want -p %s=VALUE", name, name[1:])}
		}
	}
	return nil
}

// queryRequest returns the request for the first page of a query.
func (t *Target) queryRequest(q Query) (place.Request, error) {
	body, err := json.Marshal(struct {
		Query      string      `json:"query"`
		Parameters []Parameter `json:"parameters"`
	}{q.Text, append([]Parameter{}, q.Parameters...)})
	if err != nil {
		return place.Request{}, fmt.Errorf("write query: %w", err)
	}
	header := map[string]string{
		"Content-Type":                               "application/query+json",
		"X-Ms-Documentdb-Isquery":                    "true",
		"X-Ms-Documentdb-Query-Enablecrosspartition": "true",
		"X-Ms-Max-Item-Count":                        "-1",
	}
	if q.Max > 0 {
		header["X-Ms-Max-Item-Count"] = strconv.Itoa(q.Max)
	}
	if q.Key != "" {
		name, value := place.KeyHeader(q.Key)
		header[name] = value
	}
	return place.Request{
		Method: http.MethodPost, Resource: t.resource("docs"), Header: header, Body: body,
		Want: []string{"Documents", "_count"},
	}, nil
}

// rangeHeader names the only partition that a query reads.
const rangeHeader = "X-Ms-Documentdb-Partitionkeyrangeid"

// page reads a page of a query. An account runs some queries only in a single partition, so if the container has no
// other, the query names the partition, and goes on there.
func (t *Target) page(ctx context.Context, request place.Request) (place.Reply, error) {
	reply, err := t.account.Send(ctx, request)
	plan, refused := place.CrossPartitionPlan(err)
	if !refused || request.Header[rangeHeader] != "" {
		return reply, asUsage(err)
	}
	parts, listed := t.container.Source.Partitions(ctx)
	if listed != nil {
		return reply, listed
	}
	if len(parts) > 1 {
		return reply, crossing(plan, len(parts))
	}
	request.Header[rangeHeader] = parts[0].ID // the map is that of all pages
	reply, err = t.account.Send(ctx, request)
	return reply, asUsage(err)
}

// asUsage makes a mistake in a query a wrong use of the command.
func asUsage(err error) error {
	if place.Status(err) == http.StatusBadRequest {
		return usage.Error{Err: fmt.Errorf("the query is refused: %s", cmp.Or(place.Said(err), err.Error()))}
	}
	return err
}

// perPartition begins the part of a plan with the query for each partition.
const perPartition = "for each partition"

// crossing returns the error for a query that the account does not run over several partitions.
func crossing(plan json.RawMessage, partitions int) error {
	words := describePlan(plan)
	if n := len(words) - 1; n > 0 && strings.HasPrefix(words[n], perPartition) {
		words = words[:n] // of no use to the user, who cannot send it
	}
	construct := cmp.Or(strings.Join(words, "; "), "ORDER BY, aggregate, TOP, OFFSET, DISTINCT or GROUP BY")
	return usage.Error{Err: fmt.Errorf("the account does not run this query over the %d partitions of the container, because "+
		"of its %s: want --key with one partition key, a query without that, or a store in a directory or behind "+
		"changefeed serve --lenient, which run it whole", partitions, construct)}
}

// planHeaders ask for the plan of a query instead of the rows, with all abilities of a client.
var planHeaders = map[string]string{
	"X-Ms-Cosmos-Is-Query-Plan-Request": "True",
	"X-Ms-Cosmos-Query-Version":         "1.4",
	"X-Ms-Cosmos-Supported-Query-Features": "NonValueAggregate,Aggregate,Distinct,MultipleOrderBy,OffsetAndLimit," +
		"OrderBy,Top,CompositeAggregate,GroupBy,MultipleAggregates",
}

// Explain returns the plan of a query in words.
func (t *Target) Explain(ctx context.Context, q Query) (string, error) {
	request, err := t.queryRequest(q)
	if err != nil {
		return "", err
	}
	delete(request.Header, "X-Ms-Documentdb-Isquery")
	request.Want = nil // a plan has other members
	maps.Copy(request.Header, planHeaders)
	reply, err := t.account.Send(ctx, request)
	if err != nil {
		return "", err
	}
	return cmp.Or(strings.Join(describePlan(reply.Body), "; "), "the partitions one after the other"), nil
}

// describePlan returns the parts of a plan that a client would have to do itself, and the query that the partitions
// would get as the last of them; none if there is no plan.
func describePlan(plan json.RawMessage) (words []string) {
	var p struct {
		Info struct {
			Top, Offset, Limit          *int64
			Distinct                    string `json:"distinctType"`
			OrderBy, OrderByExpressions []string
			GroupByExpressions          []string
			Aggregates                  []string
			GroupByAliasToAggregateType map[string]*string
			RewrittenQuery              string
		} `json:"queryInfo"`
	}
	if json.Unmarshal(plan, &p) != nil {
		return nil
	}
	i := p.Info
	add := func(word string, values ...string) {
		if len(values) > 0 {
			words = append(words, word+" "+strings.Join(values, ", "))
		}
	}
	for n, expression := range i.OrderByExpressions {
		if n < len(i.OrderBy) {
			i.OrderByExpressions[n] = expression + " " + i.OrderBy[n]
		}
	}
	add("ORDER BY", i.OrderByExpressions...)
	add("GROUP BY", i.GroupByExpressions...)
	for _, aggregate := range i.GroupByAliasToAggregateType {
		if aggregate != nil {
			i.Aggregates = append(i.Aggregates, *aggregate)
		}
	}
	add("aggregate", i.Aggregates...)
	if i.Distinct != "" && i.Distinct != "None" {
		add("DISTINCT", strings.ToLower(i.Distinct))
	}
	for _, limit := range []struct {
		word string
		n    *int64
	}{{"TOP", i.Top}, {"OFFSET", i.Offset}, {"LIMIT", i.Limit}} {
		if limit.n != nil {
			add(limit.word, strconv.FormatInt(*limit.n, 10))
		}
	}
	if i.RewrittenQuery != "" {
		add(perPartition, terminal.OneLine(i.RewrittenQuery))
	}
	return words
}

// systemMembers are the members that an account adds to a document.
var systemMembers = []string{"_rid", "_self", "_etag", "_attachments", "_ts"}

// WithoutSystem returns a whole document without system properties, and any other row unchanged.
func WithoutSystem(row json.RawMessage) json.RawMessage {
	for _, name := range systemMembers {
		if rawjson.Lookup(row, name) == nil {
			return row
		}
	}
	return rawjson.Without(nil, row, func(name []byte) bool { return slices.Contains(systemMembers, string(name)) })
}
