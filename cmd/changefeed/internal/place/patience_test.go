package place

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestPatienceHasAnEnd has an account that is away for longer than that.
func TestPatienceHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		p := &Patience{Limit: time.Minute, Say: func(format string, args ...any) {
			said = append(said, fmt.Sprintf(format, args...))
		}}
		begun := time.Now()
		away := errors.New("connection refused")
		calls := 0
		err := p.retryWhile(t.Context(), func() error { calls++; return away })
		if took := time.Since(begun); !errors.Is(err, away) || took < time.Minute || took > time.Minute+lastRetry {
			t.Errorf("got %v after %v, want %v after a minute", err, took, away)
		}
		if calls < 10 || calls > 20 {
			t.Errorf("%d calls, want one every 5 s in the end", calls)
		}
		if len(said) != 1 {
			t.Errorf("said %q, want one line", said)
		}
	})
}

// What may be gone at the next try is told from what is wrong for good. Every error comes with words around it.
func TestWhatMayPassIsToldFromWhatStays(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{docstore.ErrInUse, true},
		{&cosmos.Error{Status: http.StatusServiceUnavailable}, true},
		{&cosmos.Error{Status: http.StatusTooManyRequests}, true},
		{&cosmos.Error{Status: http.StatusRequestTimeout}, true},
		{&callError{status: http.StatusBadGateway}, true},
		{&callError{status: http.StatusTooManyRequests}, true},
		{&url.Error{Op: "Get", Err: context.DeadlineExceeded}, true},
		{io.ErrUnexpectedEOF, true},
		{&url.Error{Op: "Get", Err: io.EOF}, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{feed.ErrThrottled, true},
		{&cosmos.Error{Status: http.StatusNotFound}, false},
		{&callError{status: http.StatusForbidden}, false},
		{feed.ErrBadRequest, false},
		{docstore.ErrNotStore, false},
		{docstore.ErrCorrupt, false},
		{syscall.EPIPE, false},
		{usage.Found{Err: errors.New("a fault")}, false},
		{context.Canceled, false},
	} {
		if got := MayPass(fmt.Errorf("read the leases: %w", tt.err)); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
	}
}

// A server that ends cuts off some of many requests, answers others, and is then away: that is one line, and one when
// it is back, for all requests.
func TestAnAccountIsSaidToBeAwayOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		p := &Patience{Limit: time.Minute, Say: func(format string, args ...any) {
			said = append(said, fmt.Sprintf(format, args...))
		}}
		begun := time.Now()
		var requests sync.WaitGroup
		for i := range 50 {
			requests.Go(func() {
				for n := i; time.Since(begun) < 50*time.Second; n++ {
					err := p.retryWhile(t.Context(), func() error {
						at := time.Since(begun)
						time.Sleep(time.Duration(1+i%7) * time.Millisecond)
						if at > 10*time.Second && at < 40*time.Second || at > 9*time.Second && at < 10*time.Second &&
							n%2 == 0 {
							return errors.New("server closed idle connection")
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		requests.Go(func() { // its answer is on its way for long
			time.Sleep(9900 * time.Millisecond)
			if err := p.retryWhile(t.Context(), func() error {
				time.Sleep(2500 * time.Millisecond)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		requests.Wait()
		if len(said) != 2 || said[0] != "the account is away (server closed idle connection); trying for up to 1m0s" ||
			!strings.HasPrefix(said[1], "the account is back after ") {
			t.Errorf("said %q, want that it is away and is back", said)
		}
	})
}

// A connection that was idle for too long is made anew, and nobody has to know.
func TestAnAccountThatAnswersTheSecondTimeIsNotAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Patience{Limit: time.Minute, Say: func(format string, args ...any) { t.Errorf(format, args...) }}
		for range 100 {
			fails := true
			err := p.retryWhile(t.Context(), func() error {
				if fails {
					fails = false
					return errors.New("server closed idle connection")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWhatAnAccountAnswersIsNotAskedAgain has errors that patience cannot mend.
func TestWhatAnAccountAnswersIsNotAskedAgain(t *testing.T) {
	p := &Patience{Limit: time.Minute, Say: t.Logf}
	calls := 0
	err := p.retryWhile(t.Context(), func() error {
		calls++
		return feed.ErrNotFound
	})
	if !errors.Is(err, feed.ErrNotFound) || calls != 1 {
		t.Errorf("got %v after %d calls, want %v after one", err, calls, feed.ErrNotFound)
	}
}

// What a server says of a request lasts, and what a proxy says in its place, or nobody, passes.
func TestAnAccountThatIsAwayIsToldFromOneThatRefuses(t *testing.T) {
	for err, want := range map[error]bool{
		errors.New("connection reset"): true, context.DeadlineExceeded: true,
		&cosmos.Error{Status: 503}: true, &cosmos.Error{Status: 408}: true,
		&cosmos.Error{Status: 403}: false, feed.ErrConflict: false, feed.ErrThrottled: false,
		errors.ErrUnsupported: false,
		x509.UnknownAuthorityError{Cert: &x509.Certificate{}}: false,
		x509.HostnameError{Certificate: &x509.Certificate{}}:  false,
	} {
		if got := isAway(err); got != want {
			t.Errorf("%v: away %t, want %t", err, got, want)
		}
	}
}

// ending is a container whose waits end with an error.
type ending struct {
	*docstore.Container
	err error
}

func (e ending) Wait(context.Context, feed.Range, feed.Position) error { return e.err }

// The read after the wait finds out what is wrong, and has the patience.
func TestAWaitEndsWhenTheAccountIsAway(t *testing.T) {
	p := &Patience{Limit: time.Minute, Say: t.Logf}
	for err, want := range map[error]error{
		errors.New("connection reset"): nil,
		feed.ErrBadRequest:             feed.ErrBadRequest,
	} {
		w, ok := p.patientSource(ending{err: err}).(feed.Waiter)
		if !ok {
			t.Fatal("the source of a server cannot wait")
		}
		got := w.Wait(t.Context(), feed.FullRange(), feed.Position{})
		if !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("a wait that ends with %v: %v, want %v", err, got, want)
		}
	}
}

// A source that is read again while its account is away can do what the account can: without a Sequencer a position
// would stay before its page, and without a Counter a lag would be a distance.
func TestAPatientSourceHasAllAbilities(t *testing.T) {
	s := (&Patience{Limit: time.Minute, Say: t.Logf}).patientSource(ending{})
	_, waits := s.(feed.Waiter)
	_, counts := s.(feed.Counter)
	_, locates := s.(feed.Locator)
	if q, ok := s.(feed.Sequencer); !ok || q.TokenAfter(7) != `"7"` || !waits || !counts || !locates {
		t.Errorf("waits %v, counts %v, locates %v, sequences %v, want all", waits, counts, locates, ok)
	}
}

// A script must be able to tell a server that refuses the key from any other failure, whichever client has asked.
func TestARefusalOfTheKeyIsKnown(t *testing.T) {
	for status, forbidden := range map[int]bool{401: true, 403: true, 404: false, 409: false, 500: false} {
		if got := errors.Is(&callError{status: status}, feed.ErrForbidden); got != forbidden {
			t.Errorf("status %d: forbidden %v", status, got)
		}
	}
}
