package feed

import "errors"

// CodeOf returns the error of this package that err wraps, as a word for metrics, for JSON and for programs in other
// languages: a word never changes, as texts do. CodeOf returns the empty text if err wraps none of them. For example,
// the word of [ErrNoStart] is no-start, and that of [ErrTooOld] is too-old.
func CodeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.word
		}
	}
	return ""
}

// codes are the words of errors. An error stands before those that it wraps, and before those that often cause it.
var codes = []struct {
	err  error
	word string
}{
	{ErrModeChanged, "mode-changed"},
	{ErrStartIgnored, "start-ignored"},
	{ErrNoStart, "no-start"},
	{ErrLeasesGone, "leases-gone"},
	{ErrSourceGone, "source-gone"},
	{ErrNoProgress, "no-progress"},
	{ErrHandlerStuck, "handler-stuck"},
	{ErrOutage, "outage"},
	{ErrTooManyHeld, "too-many-held"},
	{ErrUnconfirmed, "unconfirmed"},
	{ErrMoved, "moved"},
	{ErrNoOwner, "no-owner"},
	{ErrForeignOwner, "foreign-owner"},
	{ErrBufferFull, "buffer-full"},
	{ErrNoKeyReads, "no-key-reads"},
	{ErrAhead, "ahead"},
	{ErrHole, "hole"},
	{ErrOverlap, "overlap"},
	{ErrHandlerTimeout, "handler-timeout"},
	{ErrLeaseLost, "lease-lost"},
	{ErrStopped, "stopped"},
	{ErrNotManual, "not-manual"},
	{ErrForeignLease, "foreign-lease"},
	{ErrBadLease, "bad-lease"},
	{ErrTooOld, "too-old"},
	{ErrPrecondition, "precondition"},
	{ErrConflict, "conflict"},
	{ErrThrottled, "throttled"},
	{ErrForbidden, "forbidden"},
	{ErrGone, "gone"},
	{ErrNotFound, "not-found"},
	{ErrBadRequest, "bad-request"},
}
