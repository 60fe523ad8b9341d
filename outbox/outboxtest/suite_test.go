package outboxtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxtest"
)

const maxData = 64 << 10

func TestTheSuiteHoldsForMemory(t *testing.T) {
	t.Parallel()
	outboxtest.TestPublisher(t, func(*testing.T) outboxtest.Broker {
		b := &outboxtest.Memory{MaxData: maxData}
		return b.Broker(func() outbox.Publisher { return b })
	})
}

// kill puts a broker out of reach for a moment.
func kill(b outboxtest.Broker) func(t *testing.T) {
	return func(t *testing.T) {
		b.Stop(t)
		b.Start(t)
	}
}

func TestKillsHoldForMemory(t *testing.T) {
	t.Parallel()
	m := &outboxtest.Memory{}
	b := m.Broker(func() outbox.Publisher { return m })
	outboxtest.TestKills(t, b, 3, kill(b))
}

// defect is a publisher with one fault, and the case that has to find it.
type defect struct {
	name    string
	caught  string
	publish func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error)
	broker  func(*outboxtest.Broker)
}

// changing makes a defect of what becomes of each message.
func changing(name, caught string, change func(m *outbox.Message)) defect {
	return defect{name: name, caught: caught, publish: func(ctx context.Context, b *outboxtest.Memory,
		msgs []outbox.Message,
	) (int, error) {
		msgs = slices.Clone(msgs)
		for i := range msgs {
			change(&msgs[i])
		}
		return b.Publish(ctx, msgs)
	}}
}

// answering makes a defect of what a publisher says.
func answering(name, caught string, answer func(msgs []outbox.Message, n int, err error) (int, error)) defect {
	return defect{name: name, caught: caught, publish: func(ctx context.Context, b *outboxtest.Memory,
		msgs []outbox.Message,
	) (int, error) {
		n, err := b.Publish(ctx, msgs)
		return answer(msgs, n, err)
	}}
}

var drawn atomic.Int64

var defects = []defect{
	changing("drops the trace", "a message arrives as it is", func(m *outbox.Message) { m.TraceParent = "" }),
	changing("drops the sequence", "a message arrives as it is", func(m *outbox.Message) { m.Seq = 0 }),
	changing("cuts times to milliseconds", "a message arrives as it is", func(m *outbox.Message) {
		m.Time = m.Time.Truncate(time.Millisecond)
	}),
	changing("encodes data again", "a message arrives as it is", func(m *outbox.Message) {
		var v any
		if json.Unmarshal(m.Data, &v) == nil {
			m.Data, _ = json.Marshal(v)
		}
	}),
	changing("compacts data", "a message arrives as it is", func(m *outbox.Message) {
		var text bytes.Buffer
		if json.Compact(&text, m.Data) == nil {
			m.Data = text.Bytes()
		}
	}),
	changing("makes times up", "attributes that a message lacks are left out", func(m *outbox.Message) {
		if m.Time.IsZero() {
			m.Time = time.Unix(0, 0)
		}
	}),
	changing("ends a key at a dot", "any text can be a key, an id or an action", func(m *outbox.Message) {
		m.Key, _, _ = strings.Cut(m.Key, ".")
	}),
	changing("decodes a key", "any text can be a key, an id or an action", func(m *outbox.Message) {
		m.Key = strings.ReplaceAll(m.Key, "%20", " ")
	}),
	changing("cuts a long key", "any text can be a key, an id or an action", func(m *outbox.Message) {
		m.Key = m.Key[:min(len(m.Key), 128)]
	}),
	changing("leaves line breaks out of headers", "any text can be a key, an id or an action", func(m *outbox.Message) {
		m.Source = strings.ReplaceAll(m.Source, "\n", "")
	}),
	changing("draws an id for each attempt", "a message that is published again", func(m *outbox.Message) {
		m.ID = fmt.Sprint(drawn.Add(1))
	}),
	changing("has one id for a key", "messages of a key keep their order", func(m *outbox.Message) { m.ID = m.Key }),
	{
		name: "reverses a call", caught: "messages of a key keep their order",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			msgs = slices.Clone(msgs)
			slices.Reverse(msgs)
			return b.Publish(ctx, msgs)
		},
	},
	{
		name: "fails without messages", caught: "messages of a key keep their order",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			if len(msgs) == 0 {
				return 0, errors.New("no messages")
			}
			return b.Publish(ctx, msgs)
		},
	},
	{
		name: "sends one request", caught: "more messages than one request holds",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			n, err := b.Publish(ctx, msgs[:min(len(msgs), 1000)])
			return n + max(len(msgs)-1000, 0), err
		},
	},
	{
		name: "has a limit for a request, not for a message", caught: "messages that fill several requests",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			size := 0
			for _, m := range msgs {
				size += len(m.Data)
			}
			if size > 2*maxData {
				return 0, feed.Poison(outbox.ErrTooLarge)
			}
			return b.Publish(ctx, msgs)
		},
	},
	{name: "has one caller", caught: "keys are published concurrently", publish: func() func(ctx context.Context,
		b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
		var busy atomic.Int64
		return func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (n int, err error) {
			defer busy.Add(-1)
			if busy.Add(1) > 1 {
				return 0, errors.New("busy")
			}
			for i := range msgs {
				runtime.Gosched() // so that others come
				if n, err := b.Publish(ctx, msgs[i:i+1]); n == 0 {
					return i, err
				}
			}
			return len(msgs), nil
		}
	}()},
	{
		name: "believes what is no acceptance", caught: "a broker that does not accept in other ways",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			for i := range msgs {
				if _, err := b.Publish(ctx, msgs[i:i+1]); err != nil && (!strings.HasPrefix(msgs[i].Key, "refuses") ||
					!errors.Is(err, outboxtest.ErrDown)) {
					return i, err
				}
			}
			return len(msgs), nil
		},
	},
	{
		name: "goes on after an answer that is late", caught: "a broker that does not accept in other ways",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			n, err := b.Publish(ctx, msgs)
			if errors.Is(err, outboxtest.ErrDown) && strings.HasPrefix(msgs[0].Key, "answers late") && n+1 < len(msgs) {
				_, _ = b.Publish(ctx, msgs[n+2:]) // those after it overtake the next one
			}
			return n, err
		},
	},
	answering("takes a large message for any error", "a message that is too large",
		func(_ []outbox.Message, n int, err error) (int, error) {
			if err != nil {
				err = errors.New(err.Error())
			}
			return n, err
		}),
	answering("retries a large message", "a message that is too large", func(_ []outbox.Message, n int, err error) (int,
		error,
	) {
		if errors.Is(err, outbox.ErrTooLarge) {
			err = outbox.ErrTooLarge
		}
		return n, err
	}),
	answering("skips a large message", "a message that is too large",
		func(msgs []outbox.Message, n int, err error) (int, error) {
			if errors.Is(err, outbox.ErrTooLarge) {
				return len(msgs), nil
			}
			return n, err
		}),
	{name: "goes on after a failure", caught: "a message that is too large", publish: goOn},
	{name: "goes on after a refusal", caught: "a message that is refused once", publish: goOn},
	answering("counts the refused message", "a message that is refused once",
		func(msgs []outbox.Message, n int, err error) (int, error) {
			return min(n+1, len(msgs)), err
		}),
	answering("counts nothing", "messages of a key keep their order", func(_ []outbox.Message, _ int, err error) (int,
		error,
	) {
		return 0, err
	}),
	answering("has an error of its own for an end", "an ended context", func(_ []outbox.Message, n int, err error) (int,
		error,
	) {
		if err != nil {
			err = context.Canceled
		}
		return n, err
	}),
	{
		name: "waits for ever", caught: "a broker that does not answer",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 6*time.Second, errors.New("late"))
			defer cancel()
			return b.Publish(ctx, msgs)
		},
	},
	answering("gives up for an outage", "a broker that is out of reach for a while",
		func(_ []outbox.Message, n int, err error) (int, error) {
			if errors.Is(err, outboxtest.ErrDown) {
				err = feed.Poison(err)
			}
			return n, err
		}),
	answering("says nothing of an outage", "a broker that is out of reach for a while",
		func(msgs []outbox.Message, n int, err error) (int, error) {
			if errors.Is(err, outboxtest.ErrDown) {
				return len(msgs), nil
			}
			return n, err
		}),
	answering("loses what is left of a call", "a message that is refused once",
		func(msgs []outbox.Message, n int, err error) (int, error) {
			if errors.Is(err, outboxtest.ErrDown) && n > 0 {
				return len(msgs), nil
			}
			return n, err
		}),
	answering("loses calls in an outage", "a broker that goes away in mid-call",
		func(msgs []outbox.Message, n int, err error) (int, error) {
			if errors.Is(err, outboxtest.ErrDown) {
				return len(msgs), nil
			}
			return n, err
		}),
	{name: "loses every ninth message", caught: killCase, publish: func(ctx context.Context, b *outboxtest.Memory,
		msgs []outbox.Message,
	) (int, error) {
		if msgs[0].Seq%9 == 0 {
			return 1, nil
		}
		return b.Publish(ctx, msgs)
	}},
	{name: "loses the newest message", caught: killCase, publish: func(ctx context.Context, b *outboxtest.Memory,
		msgs []outbox.Message,
	) (int, error) {
		if msgs[0].Seq > 1 {
			msgs = []outbox.Message{msgs[0]}
			msgs[0].Seq, msgs[0].ID = msgs[0].Seq-1, fmt.Sprintf("%s-%d", msgs[0].Key, msgs[0].Seq-1)
			return b.Publish(ctx, msgs)
		}
		return 1, nil
	}},
	{name: "gives up at a kill", caught: killCase, publish: func(ctx context.Context, b *outboxtest.Memory,
		msgs []outbox.Message,
	) (int, error) {
		n, err := b.Publish(ctx, msgs)
		if drawn.Add(1) == 10 || err != nil {
			err = feed.Poison(outboxtest.ErrDown)
			n = 0
		}
		return n, err
	}},
	{
		name: "begins again in another order", caught: "a message that is refused once",
		publish: func(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (int, error) {
			if msgs[0].Seq == 1 || len(msgs) < 2 {
				return b.Publish(ctx, msgs)
			}
			return b.Publish(ctx, append([]outbox.Message{msgs[1], msgs[0]}, msgs[2:]...))
		},
	},
	{
		name: "knows duplicates though it says no", caught: "a message that is published again",
		broker: func(b *outboxtest.Broker) { b.Deduplicates = false },
	},
	{
		name: "takes keys of any length though it says no", caught: "any text can be a key, an id or an action",
		broker: func(b *outboxtest.Broker) { b.MaxText = 128 },
	},
}

// goOn publishes each message, whatever has become of the one before it.
func goOn(ctx context.Context, b *outboxtest.Memory, msgs []outbox.Message) (n int, err error) {
	prefix := true
	for _, m := range msgs {
		_, failed := b.Publish(ctx, []outbox.Message{m})
		if failed == nil && prefix {
			n++
		} else if prefix {
			prefix, err = false, failed
		}
	}
	return n, err
}

// faulty is a publisher with a defect.
type faulty struct {
	*outboxtest.Memory
	defect
}

func (f faulty) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	if f.publish == nil {
		return f.Memory.Publish(ctx, msgs)
	}
	return f.publish(ctx, f.Memory, msgs)
}

// killCase is the case of TestKills, which is not one of TestPublisher.
const killCase = "kills of the broker"

const defectVariable = "OUTBOXTEST_DEFECT"

// TestTheSuiteCatchesDefects runs this test binary once more for each defect, since a suite
// that fails would fail the test that runs it.
func TestTheSuiteCatchesDefects(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			name := strings.ReplaceAll(d.caught, " ", "_")
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestDefect$/^"+name+"$", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), defectVariable+"="+d.name)
			out, err := cmd.CombinedOutput()
			if exit, failed := errors.AsType[*exec.ExitError](err); !failed || exit.ExitCode() != 1 ||
				!strings.Contains(string(out), "--- FAIL: TestDefect/"+name) {
				t.Errorf("case %q did not catch it: %v\n%s", d.caught, err, out)
			}
		})
	}
}

// TestDefect is one such run.
func TestDefect(t *testing.T) {
	for _, d := range defects {
		if d.name == os.Getenv(defectVariable) {
			broker := func(*testing.T) outboxtest.Broker {
				m := &outboxtest.Memory{MaxData: maxData}
				b := m.Broker(func() outbox.Publisher { return faulty{m, d} })
				if d.broker != nil {
					d.broker(&b)
				}
				return b
			}
			t.Run(killCase, func(t *testing.T) {
				b := broker(t)
				outboxtest.TestKills(t, b, 1, kill(b))
			})
			outboxtest.TestPublisher(t, broker)
		}
	}
}

// TestALineIsStalledCutAndMended has an echo at the end of the line.
func TestALineIsStalledCutAndMended(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	line := outboxtest.NewLine(t)
	dial := func() (net.Conn, error) { return line.Dial(t.Context(), "tcp", echo.Addr().String()) }
	say := func(c net.Conn, within time.Duration) error {
		_ = c.SetDeadline(time.Now().Add(within))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if err := say(c, time.Minute); err != nil {
		t.Fatalf("echo: %v", err)
	}
	line.Stall()
	if err := say(c, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("echo through a stalled line: %v, want none in time", err)
	}
	line.Mend()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("echo through a mended line: %v", err)
	}
	line.Cut()
	if err := say(c, time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("echo through a line that was cut: %v, want a broken connection", err)
	}
	if _, err := dial(); err == nil {
		t.Error("dial through a line that was cut: no error")
	}
	line.Mend()
	c, err = dial()
	if err != nil {
		t.Fatal(err)
	}
	if err := say(c, time.Minute); err != nil {
		t.Errorf("echo after all: %v", err)
	}
	_ = c.Close()
}

func ExampleMemory() {
	broker := &outboxtest.Memory{MaxData: 100}
	n, err := broker.Publish(context.Background(), []outbox.Message{
		{ID: "1", Key: "ada", Action: "Created", Data: []byte(`{"name":"Ada"}`)},
		{ID: "2", Key: "ada", Action: "Described", Data: []byte(`"` + strings.Repeat("x", 200) + `"`)},
	})
	fmt.Println(n, err, feed.IsPoison(err))
	for _, m := range broker.Received() {
		fmt.Println(m.ID, m.Attributes["type"], string(m.Data))
	}
	// Output:
	// 1 publish 2: 202 bytes of data, of at most 100: too large true
	// 1 Created {"name":"Ada"}
}

// TestAccidentsOfALineHappenOnce sends three messages through each accident, and the second of them again, to a broker
// that answers each by its bytes.
func TestAccidentsOfALineHappenOnce(t *testing.T) {
	t.Parallel()
	for way, want := range map[string]struct{ kept, answered string }{
		"torn-message": {"<one><tw<three><two>", "<one><three><two>"},
		"lost-answer":  {"<one><two><three><two>", "<one><three><two>"},
		"late-answer":  {"<one><two><three><two>", "<one><two><three><two>"},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			line, kept, answered := outboxtest.NewLine(t), "", ""
			line.Misbehaviours()[way](t, "two")
			var c net.Conn
			var serving sync.WaitGroup
			for _, m := range []string{"<one>", "<two>", "<three>", "<two>"} {
				if c == nil {
					near, far := net.Pipe()
					serving.Go(func() { kept += echo(far) })
					var err error
					if c, err = line.Connect(near); err != nil {
						t.Fatal(err)
					}
				}
				answer := make([]byte, len(m))
				_, err := io.WriteString(c, m[:3]) // in two pieces
				if err == nil {
					_, err = io.WriteString(c, m[3:])
				}
				if err == nil {
					_, err = io.ReadFull(c, answer)
				}
				if err != nil {
					_ = c.Close()
					c = nil
					serving.Wait()
					continue
				}
				answered += string(answer)
			}
			if c != nil {
				_ = c.Close()
			}
			serving.Wait()
			if kept != want.kept || answered != want.answered {
				t.Errorf("the broker has %q and has answered %q, want %q and %q", kept, answered, want.kept,
					want.answered)
			}
		})
	}
}

// echo answers each message by itself, and returns what has come.
func echo(c net.Conn) (got string) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		m, err := r.ReadString('>')
		got += m
		if err != nil {
			return got
		}
		if _, err := io.WriteString(c, m); err != nil {
			return got
		}
	}
}
