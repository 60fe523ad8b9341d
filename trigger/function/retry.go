package function

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
)

// maxFailed limits the failed batches that a handler remembers.
const maxFailed = 1000

// failedBatch is what a handler remembers of a failed batch, until the batch succeeds.
type failedBatch struct {
	err         error
	isExhausted bool // and the log says so
}

// nameOf names a batch by its lease and its first change.
func nameOf(b *feed.Batch) string {
	if len(b.Changes) == 0 {
		return b.LeaseToken
	}
	c := &b.Changes[0]
	return fmt.Sprintf("%s\n%d\n%s\n%s", b.LeaseToken, c.LSN, c.PartitionKey, c.ID)
}

// applyRetry applies the retry policy of the function to the outcome of an attempt: a failure has the delay of the
// policy, until the policy is exhausted. The attempts are those of the lease, so they survive the process.
func (h *Handler) applyRetry(b *feed.Batch, err error) error {
	name := nameOf(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.failed, name)
		return nil
	}
	f, isFailure := errors.AsType[*feed.Failure](err)
	if isFailure && f.Outage || errors.Is(err, feed.ErrStopped) || errors.Is(err, feed.ErrLeaseLost) {
		return err
	}
	failed := h.failed[name]
	if failed == nil {
		if len(h.failed) >= maxFailed {
			clear(h.failed)
		}
		failed = &failedBatch{}
		h.failed[name] = failed
	}
	failed.err = err
	r := h.function.Retry
	if r == nil {
		return err
	}
	if retries := b.Attempt - 1; r.Max < 0 || retries < r.Max {
		after := r.delay(retries + 1)
		if isFailure {
			after = max(after, f.After)
		}
		return &feed.Failure{After: after, Err: err}
	}
	if !failed.isExhausted {
		failed.isExhausted = true
		h.host.opts.Log.Error("the retry policy of the function is exhausted, and its batch still fails: Azure would "+
			"skip the batch now, but here the failure policy of the unit decides, which by default tries it again",
			"function", h.function.Name, "lease", b.LeaseToken, "attempts", b.Attempt, "changes", len(b.Changes),
			"err", err)
	}
	return err
}

// The bounds of the random factor of a delay.
const (
	leastFactor = 0.8
	mostFactor  = 1.2
)

// delay returns the pause before a retry, the first being 1.
func (r *Retry) delay(retry int) time.Duration {
	if !r.IsExponential {
		return r.Fixed
	}
	if retry <= 1 || r.Least == 0 { // the double of nothing is nothing, however often
		return r.Least
	}
	factor := leastFactor + rand.Float64()*(mostFactor-leastFactor)
	delay := float64(r.Least) * (1 + factor*math.Pow(2, float64(retry-2)))
	if delay >= float64(r.Most) {
		return r.Most
	}
	return time.Duration(delay)
}

// appendRetryContext appends what the program is told of the retries, if the function has a retry policy.
func (h *Handler) appendRetryContext(body []byte, b *feed.Batch) []byte {
	r := h.function.Retry
	if r == nil {
		return body
	}
	body = strconv.AppendInt(append(body, `,"RetryContext":{"RetryCount":`...), int64(max(0, b.Attempt-1)), 10)
	body = strconv.AppendInt(append(body, `,"MaxRetryCount":`...), int64(r.Max), 10)
	body = append(body, `,"Exception":`...)
	body = append(body, h.exceptionOf(b)...)
	return append(body, `,"Instance":null,"State":{}}`...)
}

// exception is an exception of .NET as Newtonsoft.Json writes it.
type exception struct {
	ClassName              string
	Message                string
	Data                   any
	InnerException         *exception
	HelpURL                any
	StackTraceString       any
	RemoteStackTraceString any
	RemoteStackIndex       int
	ExceptionMethod        any
	HResult                int32
	Source                 any
	WatsonBuckets          any
}

const resultOfException = -2146233088 // COR_E_EXCEPTION

// exceptionOf returns the failure of the attempt before as an exception; null if this process does not know it.
func (h *Handler) exceptionOf(b *feed.Batch) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := h.failed[nameOf(b)]
	if failed == nil || b.Attempt <= 1 {
		return []byte("null")
	}
	inner := exception{ClassName: "System.Exception", Message: failed.err.Error(), HResult: resultOfException}
	text, err := json.Marshal(exception{
		ClassName: "Microsoft.Azure.WebJobs.Host.FunctionInvocationException",
		Message:   "Exception while executing function: Functions." + h.function.Name, InnerException: &inner,
		HResult: resultOfException,
	})
	if err != nil {
		return []byte("null")
	}
	return text
}
