package natspub_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
	"github.com/millrace/changefeed/outbox/outboxtest"
)

const maxData = 1 << 20 // of a server elsewhere

// everyTwoMinutes is as the server does it by default: what the suite asks does not need more.
var everyTwoMinutes = natspub.Options{SyncEvery: 2 * time.Minute}

func TestTheSuiteHoldsForAnEmbeddedServer(t *testing.T) {
	t.Parallel()
	outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
		p := embedded(t, t.TempDir(), everyTwoMinutes)
		return outboxtest.Broker{
			Publisher: func(*testing.T) outbox.Publisher { return unclosed{p} },
			Received: func(t *testing.T) []outboxtest.Received {
				return received(t, p.Conn(), natspub.DefaultStream)
			},
			MaxData:      4<<20 - 4<<10, // headers count too
			Deduplicates: true,
		}
	})
}

// unclosed hides Close: there is one server for all publishers of a case.
type unclosed struct{ outbox.Publisher }

func TestTheSuiteHoldsForAConnection(t *testing.T) {
	t.Parallel()
	outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
		s, line := serve(t, nil), outboxtest.NewLine(t)
		return outboxtest.Broker{
			Publisher: connecting(s, nats.SetCustomDialer(dialer{t, line})),
			Received: func(t *testing.T) []outboxtest.Received {
				return received(t, connection(t, s), natspub.DefaultStream)
			},
			Stop:         func(*testing.T) { line.Cut() },
			Stall:        func(*testing.T) { line.Stall() },
			Start:        func(*testing.T) { line.Mend() },
			Misbehave:    line.Misbehaviours(),
			MaxData:      maxData - 4<<10,
			Deduplicates: true,
		}
	})
}

func TestTheSuiteHoldsForAServerThatRestarts(t *testing.T) {
	t.Parallel()
	outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
		s := serve(t, nil)
		return outboxtest.Broker{
			Publisher: connecting(s),
			Received: func(t *testing.T) []outboxtest.Received {
				return received(t, connection(t, s), natspub.DefaultStream)
			},
			Stop:         func(*testing.T) { s.stop() },
			Start:        func(t *testing.T) { s.start(t) },
			MaxData:      maxData - 4<<10,
			Deduplicates: true,
		}
	})
}

// dialer is a line as the client wants it.
type dialer struct {
	t    *testing.T
	line *outboxtest.Line
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.line.Dial(d.t.Context(), network, address)
}

// elsewhere is a server as others run it.
type elsewhere struct {
	*server.Server
	opts *server.Options
}

// serve starts a server with these options, on a directory of its own.
func serve(t *testing.T, opts *server.Options) *elsewhere {
	t.Helper()
	if opts == nil {
		opts = &server.Options{}
	}
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT,
		true, t.TempDir(), true, true
	s := &elsewhere{opts: opts}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

// start starts the server, again at the same address.
func (s *elsewhere) start(t *testing.T) {
	t.Helper()
	started, err := server.NewServer(s.opts.Clone())
	if err != nil {
		t.Fatal(err)
	}
	started.Start()
	if !started.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	s.Server, s.opts.Port = started, started.Addr().(*net.TCPAddr).Port
}

func (s *elsewhere) stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// connecting makes publishers of a server.
func connecting(s *elsewhere, options ...nats.Option) func(t *testing.T) outbox.Publisher {
	return func(t *testing.T) outbox.Publisher { return connect(t, s, natspub.Options{NATS: options}) }
}

func connect(t *testing.T, s *elsewhere, o natspub.Options) *natspub.Publisher {
	t.Helper()
	p, err := natspub.Connect(t.Context(), s.ClientURL(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func embedded(t *testing.T, dir string, o natspub.Options) *natspub.Publisher {
	t.Helper()
	p, err := natspub.Embedded(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, p) })
	return p
}

func closed(t *testing.T, p *natspub.Publisher) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// connection is a consumer's.
func connection(t *testing.T, s *elsewhere) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// received are all messages of a stream, as an ordered consumer gets them.
func received(t *testing.T, conn *nats.Conn, stream string) (all []outboxtest.Received) {
	t.Helper()
	for _, m := range messages(t, conn, stream) {
		event, err := natspub.Message(m.Headers(), m.Data())
		if err != nil {
			t.Fatalf("message on %s: %v", m.Subject(), err)
		}
		if key, ok := (natspub.Options{}).Key(m.Subject()); !ok || key != event.Key {
			t.Errorf("message on %.100s: key %.60q, %v; want %.60q", m.Subject(), key, ok, event.Key)
		}
		attributes := map[string]string{}
		for name, values := range m.Headers() {
			if name, ok := strings.CutPrefix(name, "ce-"); ok && name != "datacontenttype" {
				attributes[name], _ = url.PathUnescape(values[0])
			}
		}
		if want := maps.Collect(event.CloudEvent()); !maps.Equal(attributes, want) {
			t.Errorf("message %q has the attributes %q, which were read as %q", event.ID, attributes, want)
		}
		id, _ := url.PathUnescape(m.Headers().Get(nats.MsgIdHdr))
		all = append(all, outboxtest.Received{
			ID: id, Key: event.Key, Attributes: attributes, Trace: traceOf(m.Headers()),
			ContentType: m.Headers()["ce-datacontenttype"][0], Data: m.Data(),
		})
	}
	return all
}

// traceOf are the headers of W3C Trace Context.
func traceOf(h nats.Header) map[string]string {
	trace := map[string]string{}
	for name, values := range h {
		if strings.HasPrefix(name, "trace") {
			trace[name] = values[0]
		}
	}
	return trace
}

func messages(t *testing.T, conn *nats.Conn, stream string) (all []jetstream.Msg) {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	count := s.CachedInfo().State.Msgs
	if count == 0 {
		return nil
	}
	consumer, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Stop()
	for range count {
		m, err := read.Next(jetstream.NextMaxWait(time.Minute))
		if err != nil {
			t.Fatalf("message %d of %d: %v", len(all)+1, count, err)
		}
		all = append(all, m)
	}
	return all
}

// event is one of those of a test.
func event(key, id string) outbox.Message {
	return outbox.Message{ID: id, Key: key, Action: "Done", Source: "/test", Data: []byte(`{}`)}
}

// wantTemporary publishes an event that the server does not take now, though it may later.
func wantTemporary(t *testing.T, p *natspub.Publisher, text string) {
	t.Helper()
	begun := time.Now()
	n, err := p.Publish(t.Context(), []outbox.Message{event("k", "refused")})
	if n != 0 || err == nil || feed.IsPoison(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("Publish: %d, %v; want 0 and an error about %q that may pass", n, err, text)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Publish took %v to find out", took)
	}
}

// wantSoon wants that a channel is closed.
func wantSoon(t *testing.T, happened <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(5 * time.Second):
		t.Errorf("not so: %s", what)
	}
}

func wantPublished(t *testing.T, p *natspub.Publisher, events ...outbox.Message) {
	t.Helper()
	if n, err := p.Publish(t.Context(), events); n != len(events) || err != nil {
		t.Fatalf("Publish: %d, %v", n, err)
	}
}

// TestAStreamThatWouldNotDeduplicateIsRefused has streams that somebody else has made.
func TestAStreamThatWouldNotDeduplicateIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	js, err := jetstream.New(connection(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		stream jetstream.StreamConfig
		opts   natspub.Options
		want   string // empty where it is accepted
	}{
		{
			"the server's default window",
			jetstream.StreamConfig{Subjects: []string{"a.>"}},
			natspub.Options{Prefix: "a"},
			"2m0s",
		},
		{
			"that window, if it is wanted",
			jetstream.StreamConfig{Subjects: []string{"b.>"}},
			natspub.Options{Prefix: "b", Window: 2 * time.Minute},
			"",
		},
		{
			"no acknowledgements",
			jetstream.StreamConfig{Subjects: []string{"c.>"}, NoAck: true, Duplicates: time.Hour},
			natspub.Options{Prefix: "c"},
			"no_ack",
		},
		{
			"other subjects",
			jetstream.StreamConfig{Subjects: []string{"d.e.>", "d.key"}, Duplicates: time.Hour},
			natspub.Options{Prefix: "d"},
			`"d.key"`,
		},
		{
			"one token a key",
			jetstream.StreamConfig{Subjects: []string{"x", "e.*"}, Duplicates: time.Hour},
			natspub.Options{Prefix: "e"},
			"",
		},
		{
			"deeper subjects",
			jetstream.StreamConfig{Subjects: []string{"h.*.>"}, Duplicates: time.Hour},
			natspub.Options{Prefix: "h"},
			`"h.*.>"`,
		},
		{
			"the prefix alone",
			jetstream.StreamConfig{Subjects: []string{"i"}, Duplicates: time.Hour},
			natspub.Options{Prefix: "i"},
			`"i"`,
		},
		{
			"a part of many subjects",
			jetstream.StreamConfig{Subjects: []string{"f.*.>"}, Duplicates: time.Hour},
			natspub.Options{Prefix: "f.g"},
			"",
		},
	} {
		c.stream.Name, c.opts.Stream = strings.ReplaceAll(c.name, " ", "-"), strings.ReplaceAll(c.name, " ", "-")
		if _, err := js.CreateStream(t.Context(), c.stream); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		gone := make(chan struct{})
		c.opts.NATS = []nats.Option{nats.ClosedHandler(func(*nats.Conn) { close(gone) })}
		p, err := natspub.Connect(t.Context(), s.ClientURL(), c.opts)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case err == nil:
			wantPublished(t, p, event("k", "1"), event("", "2"))
			closed(t, p)
		}
		wantSoon(t, gone, c.name+": the connection is closed")
	}
}

// TestTheStreamOfAnEmbeddedServerFollowsTheOptions opens one again: there is no other program to change it with.
func TestTheStreamOfAnEmbeddedServerFollowsTheOptions(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nats")
	first, err := natspub.Embedded(t.Context(), dir, natspub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 && runtime.GOOS != "windows" {
		t.Errorf("the directory has the mode %v, %v: events are users' data", info.Mode(), err)
	}
	wantPublished(t, first, event("k", "1"))
	closed(t, first)
	p := embedded(t, dir, natspub.Options{Window: time.Hour, MaxBytes: 1 << 20})
	wantPublished(t, p, event("k", "1"), event("k", "2"))
	if got := received(t, p.Conn(), natspub.DefaultStream); len(got) != 2 {
		t.Errorf("received %d messages, want 2: one was published again", len(got))
	}
	js, err := jetstream.New(p.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), natspub.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.CachedInfo().Config; c.Duplicates != time.Hour || c.MaxBytes != 1<<20 ||
		c.MaxAge != natspub.DefaultMaxAge {
		t.Errorf("the stream is %+v", c)
	}
}

// TestADirectoryHasOneServer tries two, which would write over each other's files.
func TestADirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := embedded(t, dir, natspub.Options{})
	if _, err := natspub.Embedded(t.Context(), dir, natspub.Options{}); !errors.Is(err, natspub.ErrInUse) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("a second server: %v, want %v", err, natspub.ErrInUse)
	}
	wantPublished(t, p, event("k", "1"))
}

// TestOtherProgramsReachAnEmbeddedServer has it listen.
func TestOtherProgramsReachAnEmbeddedServer(t *testing.T) {
	t.Parallel()
	if p := embedded(t, t.TempDir(), natspub.Options{}); p.URL() != "" {
		t.Errorf("a server that does not listen has the URL %s", p.URL())
	}
	p := embedded(t, t.TempDir(), natspub.Options{Listen: "127.0.0.1:0"})
	embedded(t, t.TempDir(), natspub.Options{Listen: "127.0.0.1:0"}) // which has a port of its own
	other, err := natspub.Connect(t.Context(), p.URL(), natspub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, other)
	wantPublished(t, other, event("k", "1"))
	if got := received(t, p.Conn(), natspub.DefaultStream); len(got) != 1 {
		t.Errorf("received %d messages, want 1", len(got))
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]natspub.Options{
		"Prefix is a..b": {Prefix: "a..b"}, "Prefix is >": {Prefix: ">"}, "Prefix is $JS.x": {Prefix: "$JS.x"},
		"Stream": {Stream: "a.b"},
		"Window": {Window: time.Hour, MaxAge: time.Minute}, "SyncEvery": {SyncEvery: -1},
		"Listen is :4222": {Listen: ":4222"}, "Listen is 0.0.0.0:0": {Listen: "0.0.0.0:0"},
		"Listen is localhost": {Listen: "localhost"}, "Listen is localhost:nats": {Listen: "localhost:nats"},
	} {
		_, err := natspub.Embedded(t.Context(), t.TempDir(), o)
		if _, ok := errors.AsType[*changefeed.OptionError](err); !ok || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v, want one that names %s", o, err, field)
		}
	}
}

// TestASubjectIsAKey goes there and back.
func TestASubjectIsAKey(t *testing.T) {
	t.Parallel()
	o := natspub.Options{Prefix: "shop.contacts"}
	seen := map[string]string{}
	for _, key := range []string{
		"", "_", "a", "A", "a.b", "a b", "a%20b", "*", ">", "é", "\x00", "a/b",
		"0b6bcb6e-8d3c-4f6b-9d55-000000000001", strings.Repeat(".", 682),
	} {
		subject := o.Subject(key)
		got, ok := o.Key(subject)
		if !ok || got != key {
			t.Errorf("key %q has the subject %s, whose key is %q, %v", key, subject, got, ok)
		}
		if strings.Count(subject, ".") != 2 || strings.ContainsAny(subject, "*> \x00") || seen[subject] != "" {
			t.Errorf("key %q has the subject %s", key, subject)
		}
		seen[subject] = key + "!"
	}
	if got := o.Subject("0b6bcb6e-8d3c"); got != "shop.contacts.0b6bcb6e-8d3c" {
		t.Errorf("a plain key has the subject %s", got)
	}
	long := strings.Repeat("é", 1024)
	if subject := o.Subject(long); len(subject) != len("shop.contacts._")+64 || subject == o.Subject(long+"e") {
		t.Errorf("a long key has the subject %s", subject)
	}
	for _, subject := range []string{
		o.Subject(long), "shop.contacts", "shop.contacts.", "other.contacts.a",
		"shop.contacts.a.b", "shop.contacts.%zz",
	} {
		if key, ok := o.Key(subject); ok {
			t.Errorf("the subject %.100s has the key %q", subject, key)
		}
	}
}

// TestALongKeyIsPublished has the longest key that the service has, and of bytes that are escaped: longer
// subjects end the connection.
func TestALongKeyIsPublished(t *testing.T) {
	t.Parallel()
	p := embedded(t, t.TempDir(), natspub.Options{})
	key := strings.Repeat("é", 1024)
	wantPublished(t, p, event(key, "1"), event(key+"e", "2"))
	all := messages(t, p.Conn(), natspub.DefaultStream)
	if len(all) != 2 {
		t.Fatalf("received %d messages, want 2", len(all))
	}
	if m, err := natspub.Message(all[0].Headers(), all[0].Data()); err != nil || m.Key != key {
		t.Errorf("received key %.20q, %v", m.Key, err)
	}
}

// TestAFullStreamTakesNoMore until there is room again: the events wait in the outbox.
func TestAFullStreamTakesNoMore(t *testing.T) {
	t.Parallel()
	p := embedded(t, t.TempDir(), natspub.Options{MaxBytes: 64 << 10})
	m := event("k", "1")
	m.Data = []byte(`"` + strings.Repeat("x", 40<<10) + `"`)
	wantPublished(t, p, m)
	m.ID = "2"
	n, err := p.Publish(t.Context(), []outbox.Message{m})
	if n != 0 || err == nil || feed.IsPoison(err) || !strings.Contains(err.Error(), "maximum bytes") {
		t.Errorf("Publish to a full stream: %d, %v", n, err)
	}
	js, err := jetstream.New(p.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), natspub.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPublished(t, p, m)
}

// TestAServerWithoutRoomTakesNoMore has its disk full, as far as it may fill it.
func TestAServerWithoutRoomTakesNoMore(t *testing.T) {
	t.Parallel()
	p := connect(t, serve(t, &server.Options{JetStreamMaxStore: 1 << 20}), natspub.Options{})
	defer closed(t, p)
	for n := range 10 {
		m := event("k", string(rune('a'+n)))
		m.Data = []byte(`"` + strings.Repeat("x", 200<<10) + `"`)
		if n, err := p.Publish(t.Context(), []outbox.Message{m}); n != 1 {
			if feed.IsPoison(err) {
				t.Errorf("a full server: %v, want an error that may pass", err)
			}
			return
		}
	}
	t.Error("a server of 1 MB has taken 2 MB")
}

// TestAStreamThatIsGoneIsNamed deletes it under the publisher.
func TestAStreamThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	p := embedded(t, t.TempDir(), natspub.Options{Stream: "CONTACTS"})
	js, err := jetstream.New(p.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "CONTACTS"); err != nil {
		t.Fatal(err)
	}
	wantTemporary(t, p, "was CONTACTS deleted?")
	// Another stream that takes the subjects knows nothing of the events so far.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:     "OTHER",
		Subjects: []string{"outbox.>"},
	}); err != nil {
		t.Fatal(err)
	}
	wantTemporary(t, p, "expected stream")
}

// TestACallEndsWithItsConnection has a server that does not answer, and then the line cut.
func TestACallEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	line := outboxtest.NewLine(t)
	lost := make(chan struct{})
	tell := sync.OnceFunc(func() { close(lost) })
	p := connect(t, serve(t, nil), natspub.Options{NATS: []nats.Option{
		nats.SetCustomDialer(dialer{t, line}), nats.DisconnectErrHandler(func(*nats.Conn, error) { tell() }),
	}})
	defer closed(t, p)
	if o := p.Conn().Opts; o.MaxReconnect >= 0 || !o.IgnoreAuthErrorAbort {
		t.Errorf("a connection that is lost is made again %d times, and not after a refusal (%v)", o.MaxReconnect,
			!o.IgnoreAuthErrorAbort)
	}
	line.Stall()
	cut := time.AfterFunc(100*time.Millisecond, line.Cut)
	defer cut.Stop()
	wantTemporary(t, p, "connection to the server is lost")
	// what is sent now must not be sent later, when somebody else has published it
	wantTemporary(t, p, "connection to the server is lost")
	wantSoon(t, lost, "the handler of the options is told")
}

// TestAPublisherThatIsClosedSaysSo, whether its user has closed it or its options have given up a server that is away.
func TestAPublisherThatIsClosedSaysSo(t *testing.T) {
	t.Parallel()
	line := outboxtest.NewLine(t)
	gone := make(chan struct{})
	p := connect(t, serve(t, nil), natspub.Options{NATS: []nats.Option{
		nats.SetCustomDialer(dialer{t, line}), nats.MaxReconnects(2), nats.ReconnectWait(time.Millisecond),
		nats.ClosedHandler(func(*nats.Conn) { close(gone) }),
	}})
	line.Cut()
	<-gone
	e := embedded(t, t.TempDir(), natspub.Options{})
	for range 2 { // the second time it has nothing to do
		closed(t, p)
		closed(t, e)
	}
	for _, p := range []*natspub.Publisher{p, e} {
		if n, err := p.Publish(t.Context(), []outbox.Message{event("k", "1")}); n != 0 ||
			!errors.Is(err, natspub.ErrClosed) || feed.IsPoison(err) {
			t.Errorf("Publish: %d, %v; want an ErrClosed", n, err)
		}
	}
}

func TestAnEventWithoutAnIDIsPoison(t *testing.T) {
	t.Parallel()
	p := embedded(t, t.TempDir(), natspub.Options{})
	if n, err := p.Publish(t.Context(), []outbox.Message{event("k", "1"), event("k", ""), event("k", "2")}); n != 1 ||
		!errors.Is(err, outbox.ErrNoID) || !feed.IsPoison(err) {
		t.Errorf("Publish: %d, %v; want 1 and an ErrNoID that is Poison", n, err)
	}
}

// TestALimitOfTheStreamIsPoison has a stream that takes less than its server.
func TestALimitOfTheStreamIsPoison(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	js, err := jetstream.New(connection(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natspub.DefaultStream, Subjects: []string{"outbox.>"}, Duplicates: time.Hour, MaxMsgSize: 1 << 10,
	}); err != nil {
		t.Fatal(err)
	}
	p := connect(t, s, natspub.Options{})
	defer closed(t, p)
	m := event("k", "2")
	m.Data = []byte(`"` + strings.Repeat("x", 1<<10) + `"`)
	if n, err := p.Publish(t.Context(), []outbox.Message{event("k", "1"), m}); n != 1 ||
		!errors.Is(err, outbox.ErrTooLarge) || !feed.IsPoison(err) {
		t.Errorf("Publish: %d, %v; want 1 and an ErrTooLarge that is Poison", n, err)
	}
	m = event("k", "3")
	m.Source = strings.Repeat("x", 70<<10)
	if n, err := p.Publish(t.Context(), []outbox.Message{m}); n != 0 || !errors.Is(err, outbox.ErrTooLarge) ||
		!feed.IsPoison(err) {
		t.Errorf("Publish of a long header: %d, %v; want 0 and an ErrTooLarge that is Poison", n, err)
	}
}

// TestWhoMayNotPublishIsToldSo has rights taken away; the server does not answer who lacks them.
func TestWhoMayNotPublishIsToldSo(t *testing.T) {
	t.Parallel()
	may := func(subjects ...string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Allow: subjects}}
	}
	s := serve(t, &server.Options{Users: []*server.User{
		{Username: "all", Password: "x"},
		{Username: "reader", Password: "x", Permissions: may("$JS.API.STREAM.INFO.*")},
		{Username: "nobody", Password: "x", Permissions: may("nothing")},
	}})
	as := func(user string) natspub.Options {
		return natspub.Options{NATS: []nats.Option{nats.UserInfo(user, "x")}}
	}
	closed(t, connect(t, s, as("all")))
	told := make(chan struct{})
	o := as("reader")
	tell := sync.OnceFunc(func() { close(told) })
	o.NATS = append(o.NATS, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { tell() }))
	reader := connect(t, s, o)
	defer closed(t, reader)
	wantTemporary(t, reader, `Permissions Violation for Publish to "outbox.k"`)
	wantSoon(t, told, "the handler of the options is told")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := natspub.Connect(ctx, s.ClientURL(), as("nobody")); err == nil ||
		!strings.Contains(err.Error(), "$JS.API.STREAM.INFO.OUTBOX") {
		t.Errorf("Connect without rights: %v, want the right that is missing", err)
	}
	other := as("reader")
	other.Stream, other.Prefix = "OTHER", "other"
	if _, err := natspub.Connect(ctx, s.ClientURL(), other); err == nil ||
		!strings.Contains(err.Error(), "$JS.API.STREAM.CREATE.OTHER") {
		t.Errorf("Connect without the right to create the stream: %v, want the right that is missing", err)
	}
	if _, err := natspub.Connect(ctx, s.ClientURL(), as("stranger")); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("Connect as a stranger: %v, want %v", err, nats.ErrAuthorization)
	}
}
