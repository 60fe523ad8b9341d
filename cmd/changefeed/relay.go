package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/broker"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/ui"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/outbox"
)

// The command relay: a processor whose handler publishes the events of an outbox.

// relayOptions are the flags of relay.
type relayOptions struct {
	unitOptions
	to     string
	typ    string
	origin string
	alarm  time.Duration
	sync   time.Duration
	listen string
	expire time.Duration
}

// relayCommand is the command relay.
func relayCommand() *cobra.Command {
	o := &relayOptions{}
	return o.command()
}

// command returns the command relay with these options.
func (o *relayOptions) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "relay --source ADDRESS --name NAME --to BROKER [flags]",
		GroupID: groupFeed,
		Short:   "Publish the events of a transactional outbox to a message broker",
		Long: `An event is a document of the outbox's type, written in the same batch as the documents of your objects.
Events of a partition key are published in order, each at least once and always with the same id.

See changefeed help brokers for the forms of --to, and docs/outbox.md. Malformed events, and events that the broker can
never take, are parked in --dead-letters. While the broker is down, nothing is parked except events failing for
--max-age.`,
		Example: `  changefeed relay --source http://127.0.0.1:8081/shop/contacts --name rel \
    --create-leases --to embedded:nats
  changefeed relay --source cosmos:shop/contacts --name hook --hold \
    --to nats://nats:4222 --max-attempts 5 --dead-letters cosmos:shop/letters`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.register(cmd)
	untilStdinFlag(cmd)
	return cmd
}

// register adds the flags.
func (o *relayOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "`broker` to publish to, see help brokers")
	f.StringVar(&o.typ, "type", outbox.EventType, "`type` of the event documents")
	f.StringVar(&o.origin, "origin", "/events", "source attribute of messages, a `URI`")
	f.DurationVar(&o.alarm, "alarm", 0, "warn this long before expiry (default ttl/5)")
	f.DurationVar(&o.sync, "sync", 0, "how often embedded brokers sync (default always)")
	f.DurationVar(&o.expire, "expire-after", 0,
		"let events expire this long after they are published, 1m or more (default keeps their expiry)")
	f.StringVar(&o.listen, "broker-listen", "",
		"loopback `host:port` of an embedded broker (default none)")
	f.DurationVar(&o.Options.HandlerTimeout, "timeout", time.Minute, "how long the broker may take for a batch")
	o.unitOptions.register(cmd, 64, "keys of a lease published at once")
	f.Lookup("variant").Usage = "`name` of this relay, which instances compare (default BROKER and --type)"
	f.Lookup("max-attempts").Usage = "park an event that failed this often; 0 is never. A broker that is down does not count"
	_ = cmd.MarkFlagRequired("to") // fails only for an unknown flag
}

// run opens the broker and runs the processor until the stop.
func (o *relayOptions) run(cmd *cobra.Command) (err error) {
	p, err := o.prepare(cmd, nil)
	if err != nil {
		return err
	}
	return o.ui.during(cmd, o.report, ui.Options{Name: p.one.Options.Instance}, func(on *ui.UI) error {
		p.show(on)
		return p.run(cmd.Context())
	})
}

// prepare implements [unitFlags].
func (o *relayOptions) prepare(cmd *cobra.Command, _ []string) (*prepared, error) {
	if err := cmp.Or(o.checkFlags(), broker.Check("to", o.to)); err != nil {
		return nil, err
	}
	o.Options.Variant = cmp.Or(o.Options.Variant, brokerVariant(o.to, o.typ))
	i, err := o.newInstance(cmd)
	if err != nil {
		return nil, err
	}
	p := preparedOf(i)
	p.run = func(ctx context.Context) error { return o.publish(ctx, cmd, i) }
	return p, nil
}

// publish runs the processor with the broker as the handler.
func (o *relayOptions) publish(ctx context.Context, cmd *cobra.Command, i *instance.Instance) (err error) {
	var relay *outbox.Relay
	var to broker.Publisher
	hide := func() {}
	defer func() { hide() }()
	defer func() {
		if to != nil {
			err = cmp.Or(err, to.Close())
		}
	}()
	err = i.Run(ctx, func(monitored *place.Container) (instance.Handler, error) {
		settings := broker.Settings{
			SyncEvery: o.sync, Listen: o.listen, Secret: o.secret, Warn: func(text string) { i.Log.Warn(text) },
		}
		if to, err = broker.Open(ctx, "to", o.to, settings); err != nil {
			return nil, err
		}
		options := o.handlerOptions(i.Log, monitored)
		options.Hooks = i.Shown.Relay(options.Hooks)
		if relay, err = outbox.NewRelay(to, options); err != nil {
			return nil, err
		}
		shown, err := i.Shown.ShowRelay(relay)
		if err != nil {
			return nil, err
		}
		hide = shown
		return instance.Counted(relay), nil
	})
	if err != nil {
		return err
	}
	return o.reportPublished(cmd, relay.Status())
}

// checkFlags refuses invalid values of flags.
func (o *relayOptions) checkFlags() error {
	_, noURI := url.Parse(o.origin)
	host, _, noAddress := net.SplitHostPort(o.listen)
	ip := net.ParseIP(host)
	switch {
	case o.typ == "":
		return usage.Flag("type", `""`, "the type of the documents that are events, such as "+outbox.EventType)
	case o.origin == "" || noURI != nil || strings.ContainsAny(o.origin, " \t\r\n"):
		return usage.Flag("origin", strconv.Quote(o.origin), "a URI reference such as /events or https://example.com/shop")
	case o.alarm < 0:
		return usage.Flag("alarm", terminal.Exact(o.alarm), "a positive duration")
	case o.sync < 0:
		return usage.Flag("sync", terminal.Exact(o.sync), "a positive duration, or 0s to sync each message")
	case o.listen != "" && (noAddress != nil || host != "localhost" && !ip.IsLoopback()):
		return usage.Flag("broker-listen", o.listen, "a loopback address with a port, such as localhost:4222")
	case o.expire != 0 && o.expire < outbox.LeastExpireAfter:
		return usage.Flag("expire-after", terminal.Exact(o.expire), "at least "+terminal.Exact(outbox.LeastExpireAfter))
	}
	return nil
}

// handlerOptions returns the options of the handler that the flags describe.
func (o *relayOptions) handlerOptions(log *slog.Logger, monitored *place.Container) outbox.RelayOptions {
	r := outbox.RelayOptions{
		Source: o.origin, Decode: outbox.EventsOfType(o.typ), Alarm: o.alarm, ExpireAfter: o.expire,
		Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message, left time.Duration) {
			log.Warn("event expires before it is published", "key", m.Key, "id", m.ID, "action", m.Action, "left",
				left.Round(time.Second).String())
		}},
	}
	if o.expire > 0 {
		r.Container = monitored.Concrete()
	} else {
		r.Feed = monitored.Concrete() // a relay of another unit may let the events expire
	}
	return r
}

// relayed is the result of relay.
type relayed struct {
	Published int64   `json:"published" about:"events that were published"`
	Parked    int64   `json:"parked" about:"events that were parked"`
	Failed    int64   `json:"failed" about:"calls of the broker that failed"`
	Lag       float64 `json:"lag_seconds" about:"how long the last published event had waited"`
}

// ReportedAs implements [report.Value].
func (relayed) ReportedAs() string { return "relay" }

// reportPublished reports how many events were published.
func (o *relayOptions) reportPublished(cmd *cobra.Command, s outbox.RelayStatus) error {
	done := relayed{s.Published, s.Parked, s.Failed, s.Lag.Seconds()}
	if !o.report.ForPeople() {
		return o.report.Object(done, nothing)
	}
	events := "events"
	if s.Published == 1 {
		events = "event"
	}
	text := fmt.Sprintf("%d %s published", s.Published, events)
	if s.Parked > 0 { // the instance has reported their place at the end
		text += fmt.Sprintf(", %d parked", s.Parked)
	}
	fmt.Fprintln(cmd.OutOrStdout(), text)
	return nil
}

// brokersTopic is changefeed help brokers.
func brokersTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "brokers",
		Short: "The brokers of relay --to",
		Long: `The brokers of changefeed relay --to are

` + broker.Help() + `
The last three need a binary built with -tags brokers.`,
	}
}
