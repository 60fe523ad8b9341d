// Package metrics shows a processor in OpenTelemetry: instruments for what the processor does, how far the unit is and
// what that costs, and a span for each batch.
//
//	m, err := metrics.New(metrics.Options{Unit: "mailer", Container: "shop/orders"})
//	if err != nil { … }
//	p, err := changefeed.New(orders, leases, m.Handler(handler), changefeed.Options{})
//	if err != nil { … }
//	stop, err := m.Observe(p)
//	if err != nil { … }
//	defer stop()
//	err = p.Run(ctx)
//
// [Metrics.Handler] counts events, measures durations and makes spans. [Metrics.Observe] reads the state of the
// processor whenever metrics are collected, which costs no request; [Metrics.RelayHooks] and [Metrics.ObserveRelay] do
// the same for the relay of an outbox. The lag of the unit costs requests, so you say how often it is measured:
//
//	for lag, err := range p.WatchLag(ctx, 30*time.Second) {
//		m.RecordLag(lag, err)
//	}
//
// # Instruments
//
// Names follow the semantic conventions where these have one: messaging.* for the batches of a handler,
// azure.cosmosdb.* for the charge of requests. All others begin with changefeed. Each instrument has the attributes
// messaging.destination.name (Options.Container) and messaging.consumer.group.name (Options.Unit), and the attributes
// of the table, with how many values each may have. No attribute holds a lease, a partition key or a text of an error,
// so the number of series is limited. The instance belongs to the resource of your provider (service.instance.id).
//
//	messaging.process.duration                     s               calls of the handler
//	                                                               by error.type (11), messaging.operation.name (1)
//	messaging.client.consumed.messages             {message}       changes that the handler has received
//	                                                               by error.type (11), messaging.operation.name (1)
//	azure.cosmosdb.client.operation.request_charge {request_unit}  reads of the feed and writes of leases
//	                                                               by db.operation.name (2)
//	changefeed.read.duration                       s               reads of the feed
//	                                                               by error.type (11)
//	changefeed.read.changes                        {change}        changes that were read
//	changefeed.lease.write.duration                s               writes of leases
//	                                                               by error.type (11), changefeed.lease.write (2)
//	changefeed.lease.acquired                      {lease}         leases this instance has begun to work on
//	changefeed.lease.released                      {lease}         leases this instance has given up
//	                                                               by changefeed.reason (11)
//	changefeed.lease.taken_over                    {lease}         leases of instances without a sign of life
//	changefeed.parked                              {change}        new dead letters
//	                                                               by changefeed.disposition (5)
//	changefeed.redriven                            {letter}        letters the handler has received again
//	                                                               by error.type (11)
//	changefeed.skipped                             {change}        changes an operator had skipped
//	changefeed.errors                              {error}         what Hooks.Error reports
//	                                                               by changefeed.origin (5)
//
// Of a relay, from [Metrics.RelayHooks], and gauges, from [Metrics.ObserveRelay]:
//
//	messaging.client.sent.messages       {message}  messages that were sent
//	                                                by error.type (11), messaging.operation.name (1)
//	messaging.client.operation.duration  s          calls of the publisher
//	                                                by error.type (11), messaging.operation.name (1)
//	changefeed.outbox.waiting            {key}      partition keys whose next event is not accepted yet
//	changefeed.outbox.oldest             s          age of the oldest of these events, or 0
//	changefeed.outbox.expires            s          until the first of these events expires; absent if none does
//	changefeed.outbox.lag                s          between the commit of the last accepted event and its acceptance
//
// Gauges of this instance, from [Metrics.Observe]:
//
//	changefeed.instance.leases            {lease}     leases that this instance has
//	changefeed.instance.pending           {change}    changes of them that are not handled: feed.LeaseStatus
//	changefeed.instance.in_hand           {batch}     batches in the handler
//	changefeed.instance.in_hand.oldest    s           how long the oldest of them has been there, if it is slow
//	changefeed.instance.buffered          {change}    changes that were read and are not handled
//	changefeed.instance.attempts          {attempt}   the most calls that an unfinished change has had
//	changefeed.instance.failing           s           how long the oldest unfinished change has waited
//	changefeed.instance.keys.held         {key}       partition keys that are held
//	changefeed.instance.keys.set_aside    {key}       partition keys that are set aside
//	changefeed.instance.outage            1           1 during an outage, otherwise 0
//	changefeed.instance.view.age          s           since the lease store last answered
//	changefeed.instance.healthy           1           1 if Processor.Healthy returns nil, otherwise 0
//	changefeed.instance.clock             s           Unix time by the clock of this machine
//	changefeed.unit.instances             {instance}  live instances, in the last round
//	changefeed.unit.leases                {lease}     leases of the unit, in the last round
//	changefeed.unit.variants              {variant}   different handlers, programs or options of live instances
//	changefeed.unit.leases.broken         {lease}     invalid lease documents, on which nobody works
//	changefeed.unit.leases.unowned        {lease}     leases that no instance may own, in the last round
//	changefeed.unit.began                 s           Unix time at which this instance began a new unit, or absent
//	changefeed.unit.passed                {change}    changes before its start that this new unit passes over
//
// Gauges of the whole unit, from [Metrics.RecordLag]:
//
//	changefeed.lag            {change}   changes that are not handled, over all leases; absent if unknown
//	changefeed.lag.exact      1          1 if that is a count, 0 if a bound
//	changefeed.lag.age        s          age of the oldest change that is not handled
//	changefeed.watermark.age  s          age of the time before which everything is handled
//	changefeed.lag.catch_up   s          until the slowest lease has caught up, at its present rate
//	changefeed.lag.stuck      {lease}    leases whose changes nobody handles
//	changefeed.lag.unknown    {lease}    leases whose lag is unknown
//	changefeed.lease.age      s          since the last write of the lease that was written longest ago, of those
//	                                     with an owner
//
// # Spans
//
// The span of a batch is of kind consumer, named "process" and the container, and has the lease, the attempt and the
// number of changes. The span is linked to the traces of its changes, if their documents have a traceparent in the form
// of W3C Trace Context (Options.TraceParent). Your handler gets the context of the span, so your own spans are its
// children. A write of a lease is a span of kind client. Package cosmosotel makes a span of each request to the
// account.
package metrics
