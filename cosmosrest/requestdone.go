package cosmosrest

import (
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// RequestDone is an answered request, for [Options.RequestDone].
type RequestDone struct {
	// Operation is the name of the operation, as in the semantic conventions of OpenTelemetry for Azure Cosmos DB if
	// these have one. Operation is one of 33 words:
	//
	//	create_database  query_databases   read_all_databases   read_database   delete_database
	//	create_container query_containers  read_all_containers  read_container  delete_container
	//	replace_container
	//	create_item      query_items       read_all_items       read_item       delete_item
	//	replace_item     upsert_item       patch_item           query_change_feed
	//	execute_batch    execute_bulk      query_plan
	//	query_offers     read_all_offers   read_offer           replace_offer
	//	read_account     read_feed_ranges  change_partitions    create_backup   check_store
	//	_OTHER
	//
	// _OTHER means that the path or the method names no operation of the server. A request that was refused because of
	// its sender has the name of the operation that it asked for.
	Operation string

	Method string // of HTTP, as the client sent it: any text
	Scheme string // http or https, between the client, or its proxy, and the server

	Status    int     // of HTTP; 499 if the client had gone
	SubStatus int     // of the service; 0 if there is none
	Charge    float64 // request units, as the answer says
	Bytes     int64   // of the body of the answer

	Began    time.Time     // when the server had read the headers of the request
	Duration time.Duration // until the answer was written; of a read of the change feed also the wait for a change

	Client   string // address of the sender, or of its proxy, without the port
	Activity string // id of the request; the answer and the log have it too

	// Signed is the date of the request, to the second, if a key of the account has signed it. Otherwise Signed is the
	// zero time. The difference from Began is how far the clock of the client is ahead. From 15 minutes on the
	// request is refused.
	Signed time.Time
}

// otherOperation is the name of what is no operation. It is the word of the conventions for what is in no list.
const otherOperation = "_OTHER"

// reportDone passes a request to [Options.RequestDone], if it was answered.
func (c *call) reportDone() {
	if c.s.o.RequestDone == nil || c.out.Status == 0 {
		return
	}
	began := c.out.Began()
	scheme, _ := c.in.Base()
	c.s.o.RequestDone(c.ctx, RequestDone{
		Operation: c.operationName(), Method: c.in.Method, Scheme: scheme,
		Status: c.out.Status, SubStatus: c.out.SubStatus, Charge: c.out.Charge, Bytes: c.out.Bytes,
		Began: began, Duration: time.Since(began),
		Client: c.in.Client(), Activity: c.out.Activity, Signed: c.in.Signed,
	})
}

// operationName returns the name of the request's operation.
func (c *call) operationName() string {
	op := c.op
	if op == nil { // refused before the operation was looked up, and perhaps before the path was parsed
		if c.in.Parse() != nil {
			return otherOperation
		}
		var err error
		if op, err = operationOf(&c.in); err != nil {
			return otherOperation
		}
	}
	if op.byHeaders != nil {
		return op.byHeaders(&c.in)
	}
	return op.name
}

// queryOr returns the name of a POST that is either a query or something else.
func queryOr(query, other string) func(*wire.Request) string {
	return func(in *wire.Request) string {
		if in.IsQuery() {
			return query
		}
		return other
	}
}

// nameOfPost returns the name of a POST to the documents of a container, which [postItems] carries out.
func nameOfPost(in *wire.Request) string {
	switch {
	case in.Flag(wire.HeaderBatch) && in.Flag(wire.HeaderAtomic):
		return "execute_batch"
	case in.Flag(wire.HeaderBatch):
		return "execute_bulk"
	case in.Flag(wire.HeaderQueryPlan):
		return "query_plan"
	case in.IsQuery():
		return "query_items"
	case in.Flag(wire.HeaderUpsert):
		return "upsert_item"
	}
	return "create_item"
}

// nameOfGet returns the name of a GET of the documents of a container, which [getItems] carries out.
func nameOfGet(in *wire.Request) string {
	if in.Header(wire.HeaderAIM) != "" {
		return "query_change_feed"
	}
	return "read_all_items"
}
