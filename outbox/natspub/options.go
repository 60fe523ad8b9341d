package natspub

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/changefeed"
)

// Options are those of a publisher. The zero value works.
type Options struct {
	// Stream is the name of the stream; OUTBOX by default. It is created when it is not there.
	Stream string

	// Prefix is what the subjects of events begin with; outbox by default. See [Options.Subject].
	Prefix string

	// Window is for how long the server knows the id of a message, so that it takes it no second
	// time; 10 minutes by default. A relay publishes again what it published within about the
	// expiration of a lease and its longest pause. The server holds 150 bytes of memory for each id. A stream with a shorter window is refused.
	Window time.Duration

	// MaxAge is for how long the stream keeps messages, whether anybody has read them or not;
	// 14 days by default, longer than an outbox keeps its events.
	MaxAge time.Duration

	// MaxBytes is how large the stream may become; not limited by default. A stream that is
	// full takes no more, so that the events wait in the outbox.
	MaxBytes int64

	// Replicas is on how many servers of a cluster the stream is; 1 by default.
	Replicas int

	// SyncEvery is how often an embedded server syncs its files. By default it is with each
	// message, before it is acknowledged.
	SyncEvery time.Duration

	// Listen is a loopback address at which other programs can reach an embedded server, such
	// as localhost:4222; nobody can by default. There is no authentication.
	Listen string

	// NATS are options of the connection, such as [nats.UserCredentials]. With a [nats.MaxReconnects] of
	// its own, a publisher whose server is away for longer returns [ErrClosed] from then on.
	NATS []nats.Option
}

// Defaults of [Options].
const (
	DefaultStream = "OUTBOX"
	DefaultPrefix = "outbox"
	DefaultWindow = 10 * time.Minute
	DefaultMaxAge = 14 * 24 * time.Hour
)

func (o Options) withDefaults() Options {
	o.Stream, o.Prefix = cmp.Or(o.Stream, DefaultStream), cmp.Or(o.Prefix, DefaultPrefix)
	o.Window, o.MaxAge = cmp.Or(o.Window, DefaultWindow), cmp.Or(o.MaxAge, DefaultMaxAge)
	o.Replicas = cmp.Or(o.Replicas, 1)
	return o
}

// validate returns the first option that cannot be, with the defaults in place.
func (o Options) validate() error {
	refuse := func(field, value, want string) error {
		return &changefeed.OptionError{Field: field, Value: value, Want: want}
	}
	tokens := strings.Split(o.Prefix, ".")
	for _, t := range tokens {
		if t == "" || strings.ContainsAny(t, "*> \t\r\n") {
			return refuse("Prefix", o.Prefix, "a subject without wildcards, such as outbox or shop.contacts")
		}
	}
	if len(o.Prefix) > maxPrefix || tokens[0] == "$JS" || tokens[0] == "$SYS" || tokens[0] == "_INBOX" {
		return refuse("Prefix", o.Prefix, "a subject that is not the server's own")
	}
	if strings.ContainsAny(o.Stream, ".*>/\\ \t\r\n") {
		return refuse("Stream", o.Stream, "a name without dots, wildcards, slashes and spaces")
	}
	if o.Window < 0 || o.Window > o.MaxAge {
		return refuse("Window", o.Window.String(), "at most MaxAge, which is "+o.MaxAge.String())
	}
	if o.SyncEvery < 0 {
		return refuse("SyncEvery", o.SyncEvery.String(), "a positive duration, or zero for each message")
	}
	return nil
}

// address takes Listen apart. Only this machine may reach a server that asks nobody who he is.
func (o Options) address() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(o.Listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	ip := net.ParseIP(host)
	if err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, &changefeed.OptionError{Field: "Listen", Value: o.Listen, Want: "a loopback address with a port, such as localhost:4222"}
	}
	return host, port, nil
}
