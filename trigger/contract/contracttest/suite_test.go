package contracttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/contract/contracttest"
)

// The test binary itself is the program, if the environment says so.
func TestMain(m *testing.M) {
	if kind := os.Getenv("CONTRACTTEST_PROGRAM"); kind != "" {
		fmt.Fprintln(os.Stderr, "the program begins")
		if err := serve(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// steered is the handler of the programs.
func steered() *contracttest.Steered {
	return contracttest.Handler(os.Exit, func(text string) { fmt.Println(text) })
}

// serve is a program of the contract, or of one with a defect.
func serve(kind string) error {
	in, out := os.NewFile(3, "from the host"), os.NewFile(4, "to the host")
	options := contract.ProgramOptions{Client: "go", Batches: 8, Heartbeat: time.Second}
	obedient := steered()
	var handler feed.Handler = obedient
	switch kind {
	case "good":
		options = obedient.WithAbilities(options)
	case "one at a time":
		options = contract.ProgramOptions{}
	case "promises too much":
		options = obedient.WithAbilities(options)
		options.Event = func(contract.Event) {}
		options.Token = func(context.Context, string) (contract.Token, error) {
			return contract.Token{Text: "one for all", Expires: time.Unix(1, 0)}, nil
		}
	case "hides answers":
		options = obedient.WithAbilities(options)
		handler = handlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := obedient.Handle(ctx, b); err != nil && !strings.HasPrefix(err.Error(), "pending") {
				return err
			}
			return nil
		})
	case "takes null for 0":
		options = obedient.WithAbilities(options)
		handler = handlerFunc(func(ctx context.Context, b *feed.Batch) error {
			err := obedient.Handle(ctx, b)
			if err != nil {
				return errors.New(strings.ReplaceAll(err.Error(), "null", "0"))
			}
			return nil
		})
	case "asks what is not answered":
		handler = handlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if bytes.Contains(b.Changes[0].Body, []byte(`"do":"status"`)) {
				fmt.Fprintln(out, `{"type":"status","id":1}`)
				<-ctx.Done()
			}
			return obedient.Handle(ctx, b)
		})
	case "says no hello":
		time.Sleep(time.Minute)
	case "prints to the pipe":
		fmt.Fprintln(out, "listening")
	case "never ends":
		defer time.Sleep(time.Minute)
	case "waits for the stop":
		defer func() {
			if !stopped.Load() {
				time.Sleep(time.Minute)
			}
		}()
		return contract.Serve(context.Background(), stopReader{in}, out, handler, options)
	case "is deaf":
		handler = handlerFunc(func(_ context.Context, b *feed.Batch) error {
			return steered().Handle(context.Background(), b)
		})
	case "is content":
		handler = handlerFunc(func(ctx context.Context, b *feed.Batch) error {
			_ = steered().Handle(ctx, b)
			return nil
		})
	case "fails as a whole":
		handler = handlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := steered().Handle(ctx, b); err != nil {
				return errors.New(err.Error())
			}
			return nil
		})
	case "has one turn":
		var turn sync.Mutex
		handler = handlerFunc(func(ctx context.Context, b *feed.Batch) error {
			turn.Lock()
			defer turn.Unlock()
			return steered().Handle(ctx, b)
		})
	case "does not beat":
		options.Heartbeat = 0
		return contract.Serve(context.Background(), in, announcing{out}, handler, options)
	}
	return contract.Serve(context.Background(), in, out, handler, options)
}

type handlerFunc = feed.HandlerFunc

// stopped says that a stopReader has read a stop.
var stopped atomic.Bool

type stopReader struct{ io.Reader }

// Read looks for a stop.
func (s stopReader) Read(text []byte) (int, error) {
	n, err := s.Reader.Read(text)
	if bytes.Contains(text[:n], []byte(`{"type":"stop"`)) {
		stopped.Store(true)
	}
	return n, err
}

// announcing announces heartbeats that do not come.
type announcing struct{ to io.Writer }

// Write adds a heartbeat to the hello.
func (a announcing) Write(text []byte) (int, error) {
	more := bytes.Replace(text, []byte(`"type":"hello",`), []byte(`"type":"hello","heartbeat":0.5,`), 1)
	if _, err := a.to.Write(more); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Each defect fails the cases that are about it.
func TestTheSuiteFindsDefects(t *testing.T) {
	for kind, cases := range map[string]map[string]string{
		"says no hello":      {"handles a batch of one change": "not within 2s"},
		"prints to the pipe": {"handles a batch of one change": "want a JSON object on a line"},
		"never ends":         {"handles a batch of one change": "goes on for"},
		"waits for the stop": {
			"handles a batch of one change": "", "ends when the processor has died": "goes on for",
		},
		"is deaf": {"gives a batch up when its lease is lost": "when it was killed"},
		"is content": {
			"fails a batch with the text of the error": "got the outcome done",
			"answers with a poison error":              "got the outcome done",
			"names the changes that have failed":       "got the outcome done",
			"gives a batch up when its lease is lost":  "got the outcome done, want released",
		},
		"fails as a whole": {
			"answers with a poison error":              "poison is false, want true",
			"names the changes that have failed":       "want a failure of a part",
			"says how many changes are done":           "want a failure of a part",
			"reports an outage and how long to wait":   "want a failure of a part",
			"fails a batch with the text of the error": "",
		},
		"has one turn": {"handles batches of several leases at once": "there was no answer in time"},
		"promises too much": {
			"hears the events of the processor":                     "no answer in time",
			"hears first what still holds when it is started again": "no answer in time",
			"gives tokens of its identity":                          `got the token "one for all" until`,
			"says why it has no token":                              "got the outcome done for the scope",
		},
		"hides answers":    {"asks how far behind its unit is": "got the outcome done"},
		"takes null for 0": {"asks how far behind its unit is": `want failed with the error "pending null`},
		"asks what is not answered": {
			"asks nothing that the processor does not answer": "the processor answers no status",
		},
		"does not beat": {"beats while its handler works, if it has announced heartbeats": "silent for three"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("CONTRACTTEST_PROGRAM", kind)
			options := contracttest.Options{ // a program with the race detector is slow
				Only: slices.Collect(maps.Keys(cases)), Patience: 2 * time.Second,
			}
			if kind == "does not beat" {
				options.Patience = 5 * time.Second
			}
			_, err := contracttest.Test(t.Context(), []string{os.Args[0]}, options, func(r contracttest.Result) {
				want := cases[r.Name]
				if want == "" && r.Err != nil || want != "" && !strings.Contains(fmt.Sprint(r.Err), want) {
					t.Errorf("%s: got %v, want %q", r.Name, r.Err, want)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// reportTo returns a function that reports the results of cases to a test, and counts those that are skipped.
func reportTo(t *testing.T) (report func(contracttest.Result), skipped *int) {
	skipped = new(int)
	return func(r contracttest.Result) {
		if t.Log(r, r.Took); r.Err != nil {
			t.Error(r)
		}
		if r.Skipped != "" {
			*skipped++
		}
	}, skipped
}

func TestAProgramOfTheContractPasses(t *testing.T) {
	for kind, skips := range map[string]int{"good": 0, "one at a time": 10} {
		t.Setenv("CONTRACTTEST_PROGRAM", kind)
		report, skipped := reportTo(t)
		failed, err := contracttest.Test(t.Context(), []string{os.Args[0]}, contracttest.Options{}, report)
		if failed != 0 || err != nil || *skipped != skips {
			t.Errorf("%s: %d failed, %v, %d skipped, want %d", kind, failed, err, *skipped, skips)
		}
	}
}

func TestWrongNamesAreRefused(t *testing.T) {
	_, err := contracttest.Test(t.Context(), []string{"sh"}, contracttest.Options{Only: []string{"x"}}, nil)
	if err == nil || !strings.Contains(err.Error(), `there is no case "x"`) {
		t.Errorf("got %v", err)
	}
}
