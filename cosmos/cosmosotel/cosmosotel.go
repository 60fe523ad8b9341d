// Package cosmosotel makes a span of each request of a client of package cosmos, with OpenTelemetry:
//
//	client, err := cosmos.Open(ctx, endpoint, credential, cosmos.Options{
//		Transport: cosmosotel.Transport(httpClient, cosmosotel.Options{}),
//	})
//
// A span is a child of the span in the context of the call, such as that of a batch (package metrics). Its attributes
// are those of the semantic conventions for Azure Cosmos DB: the operation, the database, the container, the status
// and the sub-status, the request charge, and the activity ID of the service, which Microsoft's support asks for
// (azure.service.request.id). No attribute holds a document, a partition key, an ID of a document or a query.
//
// A request that is repeated has a span for each time. A request for changes that waits at the server has a span as
// long as the wait.
package cosmosotel

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Options of [Transport].
type Options struct {
	// TracerProvider makes the tracer; the global one by default.
	TracerProvider trace.TracerProvider
}

// scope names the tracer.
const scope = "github.com/millrace/changefeed/cosmos/cosmosotel"

// Transport returns a transport that makes a span of each request, and sends it with next. Next must not follow
// redirects: see [cosmos.Options].
//
// [cosmos.Options]: https://pkg.go.dev/github.com/millrace/changefeed/cosmos#Options
func Transport(next policy.Transporter, o Options) policy.Transporter {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &transport{next, o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
}

// transport makes spans of requests.
type transport struct {
	next   policy.Transporter
	tracer trace.Tracer
}

// Do sends a request. The span ends when the body of the answer is closed, because a large answer takes a while.
func (t *transport) Do(r *http.Request) (*http.Response, error) {
	operation, database, container := describe(r)
	name := operation
	if container != "" {
		name += " " + container
	}
	attributes := []attribute.KeyValue{
		semconv.DBSystemNameAzureCosmosDB, semconv.DBOperationName(operation),
		semconv.ServerAddress(r.URL.Hostname()),
	}
	if port, err := strconv.Atoi(r.URL.Port()); err == nil {
		attributes = append(attributes, semconv.ServerPort(port))
	}
	if database != "" {
		attributes = append(attributes, semconv.DBNamespace(database))
	}
	if container != "" {
		attributes = append(attributes, semconv.DBCollectionName(container))
	}
	ctx, span := t.tracer.Start(r.Context(), name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attributes...))
	answer, err := t.next.Do(r.WithContext(ctx))
	if err != nil {
		span.SetAttributes(semconv.AzureServiceRequestID(r.Header.Get(headerActivity)), semconv.ErrorType(cause(err)))
		span.SetStatus(codes.Error, cause(err).Error())
		span.End()
		return nil, err
	}
	answered(span, r, answer)
	if answer.Body == nil { // of a transport that is no client of package net/http
		span.End()
		return answer, nil
	}
	answer.Body = &body{ReadCloser: answer.Body, span: span}
	return answer, nil
}

// cause leaves out the address of a request, which has the ID of a document.
func cause(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// The headers of the service.
const (
	headerActivity  = "X-Ms-Activity-Id"
	headerCharge    = "X-Ms-Request-Charge"
	headerSubStatus = "X-Ms-Substatus"
)

// answered describes the answer to a request.
func answered(span trace.Span, r *http.Request, answer *http.Response) {
	activity := cmp.Or(answer.Header.Get(headerActivity), r.Header.Get(headerActivity))
	status := strconv.Itoa(answer.StatusCode)
	span.SetAttributes(semconv.AzureServiceRequestID(activity), semconv.DBResponseStatusCode(status))
	if n, err := strconv.Atoi(answer.Header.Get(headerSubStatus)); err == nil && n != 0 {
		span.SetAttributes(semconv.AzureCosmosDBResponseSubStatusCode(n))
	}
	if units, err := strconv.ParseFloat(answer.Header.Get(headerCharge), 64); err == nil {
		span.SetAttributes(semconv.AzureCosmosDBOperationRequestCharge(units))
	}
	if answer.StatusCode >= http.StatusBadRequest {
		span.SetAttributes(semconv.ErrorTypeKey.String(status))
		span.SetStatus(codes.Error, "")
	}
}

// body is the body of an answer, with whose end the span ends.
type body struct {
	io.ReadCloser
	span trace.Span
	once sync.Once
}

// Read notes in the span if the answer breaks off.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.span.SetAttributes(semconv.ErrorType(err))
		b.span.SetStatus(codes.Error, cause(err).Error())
	}
	return n, err
}

// Close ends the span.
func (b *body) Close() error {
	b.once.Do(func() { b.span.End() })
	return b.ReadCloser.Close()
}

// describe returns the operation of a request, in the words of the semantic conventions where these have one, and the
// database and the container that it is about.
func describe(r *http.Request) (operation, database, container string) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	part := func(i int) string {
		if i >= len(parts) {
			return ""
		}
		text, err := url.PathUnescape(parts[i])
		if err != nil {
			return parts[i]
		}
		return text
	}
	if part(0) != "dbs" {
		return "read_account", "", ""
	}
	database = part(1)
	if part(2) == "colls" {
		container = part(3)
	}
	return operationOf(r, parts), database, container
}

// kinds are the kinds of resources, by their parts of an address.
var kinds = map[string]string{
	"dbs": "database", "colls": "container", "docs": "item", "pkranges": "partition_key_range",
}

// verbs are what the methods of requests do.
var verbs = map[string]string{
	http.MethodGet: "read", http.MethodHead: "read", http.MethodPost: "create", http.MethodPut: "replace",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// operationOf is what a request does. An address with an even number of parts names one resource, and any other all of
// a kind.
func operationOf(r *http.Request, parts []string) string {
	isOne := len(parts)%2 == 0
	last := parts[len(parts)-1]
	if isOne {
		last = parts[len(parts)-2]
	}
	kind := cmp.Or(kinds[last], last)
	switch {
	case r.Header.Get("A-Im") != "":
		return "query_change_feed"
	case r.Header.Get("X-Ms-Cosmos-Is-Batch-Request") != "":
		return "execute_batch"
	case r.Header.Get("X-Ms-Documentdb-Isquery") != "" || r.Header.Get("X-Ms-Documentdb-Query") != "":
		return "query_" + kind + "s"
	case strings.EqualFold(r.Header.Get("X-Ms-Documentdb-Is-Upsert"), "true"):
		return "upsert_" + kind
	case r.Method == http.MethodGet && !isOne:
		return "read_all_" + kind + "s"
	}
	return cmp.Or(verbs[r.Method], strings.ToLower(r.Method)) + "_" + kind
}
