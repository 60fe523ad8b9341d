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

// Options are the options of a publisher. The zero value works.
type Options struct {
	// Stream is the name of the stream; OUTBOX by default. A missing stream is created.
	Stream string

	// Prefix is the beginning of the subjects of events; outbox by default. See [Options.Subject].
	Prefix string

	// Window is how long the server remembers the id of a message, so that it does not store the message twice; 10
	// minutes by default. A relay may republish a message within about the expiration of a lease plus the longest
	// pause. The server needs 150 bytes of memory for each id. A stream with a shorter window is refused.
	Window time.Duration

	// MaxAge is how long the stream keeps messages, read or unread; 14 days by default, longer than an outbox keeps
	// events.
	MaxAge time.Duration

	// MaxBytes limits the size of the stream; unlimited by default. A full stream accepts no more messages, so that the
	// events wait in the outbox.
	MaxBytes int64

	// Replicas is how many servers of a cluster store the stream; 1 by default.
	Replicas int

	// SyncEvery is how often an embedded server syncs files. By default the server syncs each message before the
	// acknowledgement.
	SyncEvery time.Duration

	// Listen is a loopback address at which other programs can reach an embedded server, such as localhost:4222; by
	// default they cannot. There is no authentication.
	Listen string

	// NATS are options of the connection, such as [nats.UserCredentials]. If you set [nats.MaxReconnects] and the
	// server is away for longer, the publisher returns [ErrClosed] from then on.
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

// validate returns an error for the first invalid option, after withDefaults.
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

// listenAddress parses Listen. Only this machine may reach a server without authentication.
func (o Options) listenAddress() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(o.Listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	ip := net.ParseIP(host)
	if err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, &changefeed.OptionError{
			Field: "Listen", Value: o.Listen,
			Want: "a loopback address with a port, such as localhost:4222",
		}
	}
	return host, port, nil
}
