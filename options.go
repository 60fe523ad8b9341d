package changefeed

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// Options configure a [Processor]. The zero value works.
type Options struct {
	// Instance names this instance in the leases; the default is host name and process id.
	// If two processes share a name by mistake, each is still an owner of its own.
	Instance string

	// Start is where a new unit begins; the default is now. The unit remembers it. On a restart,
	// pass the same Start or none; any other, including FromNow, makes Run return
	// [feed.ErrStartIgnored]. A unit that a .NET processor made remembers no start: leases without
	// a position begin at Start, and if Start is not set Run returns [feed.ErrNoStart].
	Start feed.Start

	// Mode is which changes the feed shows; the default is the latest version of each item.
	Mode feed.Mode

	// MaxItems is how many changes a batch has at most; 0 is the source's default. A single
	// transaction may have more.
	MaxItems int

	// MinLeases is how many leases a new unit has at least: physical partitions are cut into finer
	// leases. 0 is one lease for each partition.
	MinLeases int

	// MaxLeases is how many leases this instance takes at most; 0 is no limit. Leases that no
	// instance may take are reported as [feed.ErrNoOwner]. After a split an instance may own more
	// for a while.
	MaxLeases int

	// Poll is the longest pause between two reads of an idle lease, 5 s by default. A
	// source that is a [feed.Waiter] is not polled: an idle lease is read once per Renew.
	Poll time.Duration

	// Acquire is the time between two rounds of the balancer, 13 s by default, varied at random by
	// a tenth.
	Acquire time.Duration

	// Renew is the time between two writes of an idle lease, 17 s by default. After a checkpoint
	// it is up to half as much longer, so that the renewals of an instance come together.
	Renew time.Duration

	// Expiration is how long an owner may be silent before other instances take its leases, 60 s
	// by default. Renew must be shorter than nine tenths of Expiration.
	Expiration time.Duration

	// Drain is how long a batch in the handler may go on when the processor stops or hands its
	// lease over, 10 s by default. Then the context of the handler ends. Run returns within four
	// times Drain.
	Drain time.Duration

	// HandlerTimeout is how long a handler may take for one batch, 10 min by default. Then its
	// context ends with [feed.ErrHandlerTimeout] and the batch has failed. The batch is retried in
	// two parts, and later batches have half as many changes, down to one transaction. Batches
	// grow again when one takes less than half of the time.
	HandlerTimeout time.Duration

	// RetryMin and RetryMax bound the pause before a failed batch is redelivered, and before a
	// failed read or another failed request is repeated. The pause doubles from 100 ms to 30 s by
	// default, or stays at RetryMin if RetryMin is longer than 30 s.
	RetryMin, RetryMax time.Duration

	// MaxBytes is how many bytes of documents a batch has at most; a single transaction may have
	// more. MaxWait is how long a batch that is not full waits for more changes. Zero, the default
	// of both, is no limit and no wait.
	MaxBytes int
	MaxWait  time.Duration

	// Filter reports whether the handler wants a change; nil, the default, is all changes. The
	// position moves past the others. Filter must be quick, and a panic in it ends the program.
	Filter func(c *feed.Change) bool

	// Concurrency is how many batches of one lease are handled at once, 1 by default. Changes
	// of one partition key are handled in their order, and a key is in one batch at a time.
	// With 1 a batch has changes of all keys. Above 1 it has changes of several keys only if
	// that makes calls cheaper: the processor begins with one key a batch, tries twice as many
	// now and then, and keeps that if each change then takes less than three quarters of the
	// time. A key that hangs in a call holds up the other keys of that call.
	Concurrency int

	// BufferItems and BufferBytes bound what is read of a lease and not yet handled: 4,000
	// changes and 64 MiB by default. A page more may be read. When the buffer is full, keys
	// that fail or hang are set aside, see [FailurePolicy]; if that does not help, nothing more is
	// read, which is reported as [feed.ErrBufferFull]. A lease remembers at most 5,000 changes that
	// are not done among others that are: with a larger buffer more is repeated by the next
	// owner. With a Concurrency of 1 a page is in memory, and the next two pages of a backlog if
	// the first one is within half of both bounds; more is read only with MaxWait, or while
	// changes fail.
	BufferItems int
	BufferBytes int64

	// OnFailure says what happens to changes that the handler cannot handle. By default they are
	// retried for ever.
	OnFailure FailurePolicy

	// Manual leaves checkpoints to [feed.Batch.Checkpoint]: a batch is done when the handler confirms
	// it, whatever the handler returns. If the handler returns nil without confirming, the batch is
	// redelivered under the next owner, and not before. Manual excludes the
	// MaxAttempts, MaxAge and DeadLetters of OnFailure, which make checkpoints of their own, and
	// CheckpointItems and CheckpointEvery.
	Manual bool

	// CheckpointItems and CheckpointEvery make automatic checkpoints rarer: a checkpoint comes when
	// at least CheckpointItems changes are done since the last one, or CheckpointEvery has passed.
	// If both are zero, a checkpoint comes whenever the position can move: after each batch as long
	// as nothing fails. Changes that are done after one that is not are noted in the lease within a
	// second. After a crash, what was done since the last checkpoint is redelivered; after an
	// orderly stop nothing is.
	CheckpointItems int
	CheckpointEvery time.Duration

	Hooks Hooks
}

// A FailurePolicy says what happens to changes that the handler cannot handle. The zero value
// retries them for ever.
//
// Without MaxAttempts and MaxAge, and with a Concurrency of 1, all changes arrive in the order of
// the feed: a batch that fails is retried whole, for ever, and its lease waits. Otherwise a failing
// batch of several partition keys is retried in two parts, by key. A batch of one key is retried
// whole until its attempts are used up, then in two parts, by transaction, until the change that
// fails is alone. Other keys go on meanwhile.
type FailurePolicy struct {
	// MaxAttempts is how often a change may fail, and MaxAge for how long, before the change that
	// fails is parked in DeadLetters. Zero, the default, is no limit. Without DeadLetters the
	// change is retried for ever, alone.
	//
	// The lease stores the attempts with the position for which they count, so a handler that ends
	// the process fails too. The lease also stores since when a change fails, to the second; after
	// a merge of partitions that time starts anew.
	//
	// If at least three changes have failed, and more keys than have succeeded meanwhile, it is an
	// outage, reported to [Hooks.Outage] and as [feed.ErrOutage]: nothing is parked, and the
	// handler is called only now and then to see whether it has recovered. MaxAge counts in an
	// outage too. An outage is recognized only with MaxAttempts and DeadLetters: with MaxAge alone
	// nothing is parked sooner, outage or not.
	MaxAttempts int
	MaxAge      time.Duration

	// DeadLetters is where changes are parked that the handler cannot handle. It needs MaxAttempts
	// or MaxAge: without a limit nothing is parked. It excludes [Options.Manual], as MaxAttempts
	// and MaxAge do: parking a change is a checkpoint that the handler has not confirmed.
	DeadLetters feed.DeadLetters

	// HoldKeys parks the later changes of the key of a parked change too, so that their order is
	// kept, until you release the key. It needs a [feed.LetterBox]. At most 1,000 keys of a lease
	// are held, fewer if they are long; a change of one more key waits, that key is set aside, and
	// [feed.ErrTooManyHeld] is reported.
	//
	// After a merge of partitions the lease no longer says since which change a key is held:
	// changes of a held key that are delivered again are then parked too, also those that were
	// handled before the first one failed. A release hands them to the handler once more.
	HoldKeys bool

	// MaxSetAside is how many partition keys of a lease may be set aside, 100 by default and 1,000
	// at most. A key is set aside when a change of the key has used up its attempts or cannot be
	// parked, or when the buffer is full and the key fails or has been in the handler for more than
	// a second. The processor then forgets later changes of the key and reads them again by key
	// when the key goes on, in order with its new ones, also under the next owner. So these changes
	// need no memory and hold up no other key, and the position moves past them. In a unit shared
	// with another kind of processor the position waits before the oldest unfinished change.
	//
	// Beyond that number the changes of such a key stay in memory, up to [Options.BufferItems] and
	// [Options.BufferBytes], and when these are full nothing more is read. Setting aside needs a
	// source that is a [feed.Locator], and a limit or a Concurrency above 1.
	MaxSetAside int
}

// The defaults of [Options]; acquire, renew, expiration and poll are those of the
// service's own processors.
const (
	defaultPoll           = 5 * time.Second
	defaultAcquire        = 13 * time.Second
	defaultRenew          = 17 * time.Second
	defaultExpiration     = 60 * time.Second
	defaultDrain          = 10 * time.Second
	defaultHandlerTimeout = 10 * time.Minute
	defaultRetryMin       = 100 * time.Millisecond
	defaultRetryMax       = 30 * time.Second
	defaultMaxSetAside    = 100
	defaultBufferItems    = notes.MaxOpen * 4 / 5
	defaultBufferBytes    = 64 << 20
)

// maxLeases bounds MinLeases.
const maxLeases = 100_000

// withDefaults fills what is zero.
func (o Options) withDefaults() Options {
	o.Instance = cmp.Or(o.Instance, hostInstance())
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.Acquire = cmp.Or(o.Acquire, defaultAcquire)
	o.Renew = cmp.Or(o.Renew, defaultRenew)
	o.Expiration = cmp.Or(o.Expiration, defaultExpiration)
	o.Drain = cmp.Or(o.Drain, defaultDrain)
	o.HandlerTimeout = cmp.Or(o.HandlerTimeout, defaultHandlerTimeout)
	o.RetryMin = cmp.Or(o.RetryMin, defaultRetryMin)
	o.RetryMax = cmp.Or(o.RetryMax, max(defaultRetryMax, o.RetryMin))
	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.OnFailure.MaxSetAside = cmp.Or(o.OnFailure.MaxSetAside, defaultMaxSetAside)
	o.BufferItems = cmp.Or(o.BufferItems, defaultBufferItems)
	o.BufferBytes = cmp.Or(o.BufferBytes, defaultBufferBytes)
	o.Hooks = o.Hooks.withDefaults()
	return o
}

// hostInstance names this process on its host.
func hostInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// validate checks options after withDefaults. A combination in which one would be ignored in
// silence is refused too.
func (o Options) validate() error {
	const (
		duration = "a positive duration, or zero for the default"
		number   = "a positive number, or zero for the default"
		none     = "a positive duration, or zero for none"
	)
	_, box := o.OnFailure.DeadLetters.(feed.LetterBox)
	parts := o.toParts()
	for _, rule := range []struct {
		ok    bool
		field string
		value any
		want  string
	}{
		{strings.TrimSpace(o.Instance) != "", "Instance", strconv.Quote(o.Instance), "a name for this instance, such as the host's"},
		{o.Poll > 0, "Poll", o.Poll, duration},
		{o.Acquire > 0, "Acquire", o.Acquire, duration},
		{o.Renew > 0, "Renew", o.Renew, duration},
		{o.Expiration > 0, "Expiration", o.Expiration, duration},
		{o.Drain > 0, "Drain", o.Drain, duration},
		{o.HandlerTimeout > 0, "HandlerTimeout", o.HandlerTimeout, duration},
		{o.RetryMin > 0, "RetryMin", o.RetryMin, duration},
		{o.RetryMax > 0, "RetryMax", o.RetryMax, duration},
		{o.Renew < parts.Trust(), "Renew", o.Renew, fmt.Sprintf("less than Expiration (%v) less its safety margin (%v)", o.Expiration, parts.Margin())},
		{o.RetryMax >= o.RetryMin, "RetryMax", o.RetryMax, fmt.Sprintf("at least RetryMin (%v)", o.RetryMin)},
		{o.Mode <= feed.AllVersionsAndDeletes, "Mode", uint8(o.Mode), "LatestVersion or AllVersionsAndDeletes"},
		{o.Mode == feed.LatestVersion || o.Start.IsNow(), "Start", o.Start, "now: all versions and deletes cannot start from the beginning or from a time"},
		{o.MaxItems >= 0, "MaxItems", o.MaxItems, number},
		{o.MaxBytes >= 0, "MaxBytes", o.MaxBytes, number},
		{o.MinLeases >= 0, "MinLeases", o.MinLeases, number},
		{o.MaxLeases >= 0, "MaxLeases", o.MaxLeases, number},
		{o.CheckpointItems >= 0, "CheckpointItems", o.CheckpointItems, number},
		{o.Concurrency >= 0, "Concurrency", o.Concurrency, number},
		{o.BufferItems >= 0, "BufferItems", o.BufferItems, number},
		{o.BufferBytes >= 0, "BufferBytes", o.BufferBytes, number},
		{o.OnFailure.MaxAttempts >= 0, "OnFailure.MaxAttempts", o.OnFailure.MaxAttempts, number},
		{o.OnFailure.MaxSetAside >= 0, "OnFailure.MaxSetAside", o.OnFailure.MaxSetAside, number},
		{o.OnFailure.MaxSetAside <= notes.MaxAside, "OnFailure.MaxSetAside", o.OnFailure.MaxSetAside, fmt.Sprintf("at most %d, for which a lease has room", notes.MaxAside)},
		{o.MinLeases <= maxLeases, "MinLeases", o.MinLeases, fmt.Sprintf("at most %d", maxLeases)},
		{o.CheckpointEvery >= 0, "CheckpointEvery", o.CheckpointEvery, none},
		{o.MaxWait >= 0, "MaxWait", o.MaxWait, none},
		{o.OnFailure.MaxAge >= 0, "OnFailure.MaxAge", o.OnFailure.MaxAge, none},
		{!o.Manual || o.CheckpointItems == 0 && o.CheckpointEvery == 0, "Manual", true, "false with CheckpointItems or CheckpointEvery, which are for automatic checkpoints"},
		{!o.Manual || !parts.HasPolicy() && o.OnFailure.DeadLetters == nil, "Manual", true, "false with a MaxAttempts, MaxAge or DeadLetters of OnFailure, which checkpoint without the handler's word"},
		{o.OnFailure.DeadLetters == nil || parts.HasPolicy(), "OnFailure.DeadLetters", fmt.Sprintf("%T", o.OnFailure.DeadLetters), "MaxAttempts or MaxAge beside it: without a limit nothing is ever parked"},
		{!o.OnFailure.HoldKeys || box, "OnFailure.HoldKeys", true, "DeadLetters that are a LetterBox, to release what is held"},
		{o.MaxWait < o.HandlerTimeout, "MaxWait", o.MaxWait, fmt.Sprintf("less than HandlerTimeout (%v)", o.HandlerTimeout)},
	} {
		if !rule.ok {
			return &OptionError{rule.field, fmt.Sprint(rule.value), rule.want}
		}
	}
	return nil
}

// toParts are the options as the parts of the processor know them.
func (o Options) toParts() instance.Options {
	return instance.Options{
		Instance: o.Instance, Start: o.Start, Mode: o.Mode, MaxItems: o.MaxItems, MinLeases: o.MinLeases, MaxLeases: o.MaxLeases,
		Poll: o.Poll, Acquire: o.Acquire, Renew: o.Renew, Expiration: o.Expiration, Drain: o.Drain, HandlerTimeout: o.HandlerTimeout,
		RetryMin: o.RetryMin, RetryMax: o.RetryMax, MaxBytes: o.MaxBytes, MaxWait: o.MaxWait, Filter: o.Filter,
		Concurrency: o.Concurrency, BufferItems: o.BufferItems, BufferBytes: o.BufferBytes,
		MaxAttempts: o.OnFailure.MaxAttempts, MaxAge: o.OnFailure.MaxAge, DeadLetters: o.OnFailure.DeadLetters, MaxSetAside: o.OnFailure.MaxSetAside, HoldKeys: o.OnFailure.HoldKeys,
		Manual: o.Manual, CheckpointItems: o.CheckpointItems, CheckpointEvery: o.CheckpointEvery,
	}
}
