// The contacts example is the system of the article "Transactional Outbox pattern with Azure Cosmos DB": a REST
// service whose contacts raise events, a relay that publishes the events to a message broker, and a consumer that
// prints the received events.
//
//	go run ./examples/contacts
//
// All parts run in this process, on an embedded store and an embedded broker. With the flags you can use others. If
// you start several processes with the same --contacts and --to, they share the relay's work. For Azure Service Bus,
// Kafka and RabbitMQ, use go run -tags brokers; of these three, the consumer can read only Service Bus.
//
// You can copy these parts: contact.go (the aggregate and its events), commands.go and queries.go (units of work, and
// a list that needs no query engine), relay.go, consumer.go. The REST interface is in api.go, problem.go and
// openapi.json, the validation in faults.go, and the page in page.html and journal.go. containers.go and brokers.go
// open the parts.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	o, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	}
	if err := o.runSystem(ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "contacts:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	listen   string
	data     string
	output   string
	contacts string
	leases   string
	to       string
	consumer string
}

func parseOptions(args []string) (o options, err error) {
	f := flag.NewFlagSet("contacts", flag.ContinueOnError)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8480", "`address` of the service and its page")
	f.StringVar(&o.data, "data", "contacts-data", "`directory` of the embedded store and broker")
	f.StringVar(&o.output, "o", "text", "how events are printed: `text or json`, a line each")
	f.StringVar(&o.contacts, "contacts", "",
		"`address` of the container of contacts: "+addressForms+" (default in --data)")
	f.StringVar(&o.leases, "leases", "", "`address` of the lease container (default leases, beside --contacts)")
	f.StringVar(&o.to, "to", "", "the `broker`: "+brokerForms+" (default in --data)")
	f.StringVar(&o.consumer, "consumer", "",
		"`name` of the consumer: those of one name share the events, others get all of them (default after --listen);\nof a topic of Service Bus its subscription, and none for a queue")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("%q is no flag: want flags only", f.Arg(0))
	case o.output != "text" && o.output != "json":
		err = fmt.Errorf("-o is %q: want text or json", o.output)
	}
	if err != nil {
		fmt.Fprintln(f.Output(), err)
	}
	o.contacts = cmp.Or(o.contacts, "docstore:"+o.data+"/store#contacts")
	o.to = cmp.Or(o.to, "embedded:"+o.data+"/nats")
	return o, err
}

// runSystem runs the whole system, until ctx ends or a part of it fails.
func (o options) runSystem(ctx context.Context, stdout, stderr io.Writer) (err error) {
	in, err := openContainers(ctx, o.contacts, o.leases)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, in.close()) }()
	to, err := openBroker(ctx, o.to)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, to.Close()) }()
	relay, relaying, err := newRelay(to, in.letters)
	if err != nil {
		return err
	}
	if in.isAlone {
		relaying = alone(relaying)
	}
	processor, err := changefeed.New(in.source, in.leases, relay, relaying)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	events := newJournal()
	service := api{&Contacts{in.store, outbox.Options{}}, events}
	reader := consumer{to: stdout, asJSON: o.output == "json", events: events}
	o.printGreeting(stderr, "http://"+listener.Addr().String())
	return together(
		ctx,
		processor.Run,
		func(ctx context.Context) error { return serve(ctx, listener, service.makeHandler(), events.close) },
		func(ctx context.Context) error {
			return o.consumeEvents(ctx, to, o.consumerName(listener), reader.handleMessage)
		},
	)
}

// consumerName returns a different name for each process, so each page shows all events.
func (o options) consumerName(l net.Listener) string {
	host, _ := os.Hostname()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	name, _, _ := strings.Cut(host, ".")
	return cmp.Or(o.consumer, "contacts-"+name+"-"+port)
}

// printGreeting prints which parts run, and commands to try.
func (o options) printGreeting(w io.Writer, url string) {
	fmt.Fprintf(w, `contacts  %s/
container %s
broker    %s

Try, while the events appear below and on the page:

  curl -i --json '{"firstName":"Ada","lastName":"Lovelace","companyName":"Analytical Engines"}' -H 'Idempotency-Key: ada' %[1]s%[4]s
  curl -i --json '{"email":"ada@example.com"}' %[1]s%[4]s/%[5]s/update-email
  curl %[1]s%[4]s

`, url, o.contacts, o.to, root, newID("ada"))
}

// together runs parts until one of them or ctx ends, and then ends the others.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() {
			defer stop()
			if err := part(ctx); !errors.Is(err, context.Canceled) {
				errs[i] = err
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// How long a client may take for its header, and running requests when the service stops.
const (
	headerTime = 10 * time.Second
	drainTime  = 5 * time.Second
)

// serve answers requests until ctx ends, and then finishes the running requests.
func serve(ctx context.Context, l net.Listener, h http.Handler, closing func()) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTime}
	s.RegisterOnShutdown(closing)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	err := s.Serve(l)
	if ctx.Err() == nil {
		return err
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	return s.Shutdown(drain)
}
