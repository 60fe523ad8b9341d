package changefeed

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// Options configure a [Processor]. The zero value works.
type Options struct {
	// Instance names this instance in the leases; the default is host name and process id. If two processes share a
	// name by mistake, they still count as two owners.
	Instance string

	// Variant names your handler and its version, such as "mail 1.4", at most 200 bytes; you need not set it. Each
	// instance shows Variant to the others, with the version of the program, from the build information, and with the
	// options that decide the fate of a change: HandlerTimeout, whether Manual, Filter and a Concurrency above 1 are
	// set, and of OnFailure MaxAttempts, MaxAge, HoldKeys and whether there are DeadLetters. If these differ between
	// live instances of the unit, each of them reports the difference: [Hooks.Differing] and [Status.Variants].
	// Instances showing nothing, as those of an older version, differ from none.
	Variant string

	// Start says where a new unit begins; the default is now. The unit remembers the start. On a restart, pass the same
	// Start or none; with any other, including FromNow, Run returns [feed.ErrStartIgnored]. A unit made by a .NET
	// processor remembers no start. Leases without a position then begin at Start, and if you do not set Start, Run
	// returns [feed.ErrNoStart].
	Start feed.Start

	// Mode selects the changes the feed shows; the default is the latest version of each item.
	Mode feed.Mode

	// MaxItems limits the changes of a batch; 0 is a page of the source. A single transaction may have more. A page has
	// up to 1,000 changes, at most BufferItems, or MaxItems if that is more, and batches are cut from the page. If
	// BufferBytes is below 4 MiB, or the source is no [feed.Sequencer], a page is a batch.
	MaxItems int

	// MinLeases is the smallest number of leases of the unit: if the unit would have fewer, the processor cuts physical
	// partitions into finer leases. 0 is a lease for each partition. If an instance of a running unit has a higher
	// MinLeases than the unit has leases, the owners of the widest ranges cut their leases, as after a split of
	// partitions: the parts continue at the checkpoint, so nothing is skipped. The highest MinLeases of the running
	// instances counts. If that falls, or partitions are merged, neighbouring leases of a partition are joined again,
	// down to the number a new unit would have. This begins when there have been too many leases for five times
	// Expiration, so a restart joins none. None is joined whose owner has OnFailure.HoldKeys, [Needs].NeverJoin or a
	// source that is no [feed.Sequencer]. While another kind of processor owns a lease, none is cut or joined, and a
	// lease that another kind has made, whose name is the id of a partition, is never cut.
	MinLeases int

	// MaxLeases limits the leases this instance takes; 0 is no limit. Leases that no instance may take are reported as
	// [feed.ErrNoOwner]. An instance may own more for a while after a split, and one lease more during a join of two
	// leases.
	MaxLeases int

	// Weight is this instance's share of the leases, compared with the weights of the other running instances: an
	// instance with a Weight of 2 receives twice as many leases as an instance with a Weight of 1. The default is 1,
	// and 1,000 is the highest. Instances of older versions count as 1.
	Weight int

	// ShareByLoad shares the leases by their loads instead of their number, if all running instances set it. The load
	// of a lease is the number of changes in a minute, plus the number of LSNs by which the lease is behind the feed.
	// The owner writes the load into the lease, without extra writes. Nothing moves while each instance is within a
	// tenth of its share, or if no move would make the largest load smaller. A lease is never divided because of load:
	// for a single busy lease, see MinLeases.
	ShareByLoad bool

	// Poll is the longest pause between two reads of an idle lease, 5 s by default. If the source is a [feed.Waiter],
	// the processor does not poll, and reads an idle lease once per Renew.
	Poll time.Duration

	// Acquire is the time between two rounds of the balancer, 13 s by default, varied at random by
	// a tenth.
	Acquire time.Duration

	// Renew is the time between two writes of an idle lease, 17 s by default. After a checkpoint the time is up to half
	// as much longer, so that an instance renews several leases together.
	Renew time.Duration

	// Expiration is how long an owner may be silent before other instances take its leases, 60 s by default. Renew must
	// be shorter than nine tenths of Expiration.
	Expiration time.Duration

	// Drain limits how long a batch in the handler may go on when the processor stops or hands the lease over, 10 s by
	// default. Then the context of the handler ends. Run returns within four times Drain.
	Drain time.Duration

	// HandlerTimeout limits the time of a handler for a batch, 10 min by default. If a handler takes longer, the
	// context ends with [feed.ErrHandlerTimeout] and the batch has failed. The processor retries the batch in two
	// parts, and later batches have half as many changes, down to a single transaction. Batches grow again when a call
	// takes less than half of HandlerTimeout.
	HandlerTimeout time.Duration

	// RetryMin and RetryMax bound the pause before a failed batch is redelivered, and before a failed read or another
	// failed request is repeated. By default the pause doubles from 100 ms to 30 s. If you set RetryMin above 30 s and
	// leave RetryMax unset, the pause stays at RetryMin.
	RetryMin, RetryMax time.Duration

	// MaxBytes limits the bytes of documents in a batch; a single transaction may have more. MaxWait is how long a
	// batch that is not full waits for more changes. Zero, the default of both, is no limit and no wait.
	MaxBytes int
	MaxWait  time.Duration

	// Filter reports whether the handler wants a change; if Filter is nil, the default, the handler receives all
	// changes. The position moves past unwanted changes. Filter must be quick, and a panic in Filter ends the program.
	Filter func(c *feed.Change) bool

	// Concurrency is how many batches of a lease are handled at once, 1 by default. Changes of a partition key are
	// handled in their order, and a key is in a single batch at a time.
	//
	// With 1, a batch has changes of all keys. Above 1, a batch has changes of several keys only if fewer calls save
	// time: the processor begins with a single key per batch and tries twice as many now and then. If each change then
	// takes less than three quarters of the time, the processor keeps the larger number. If the call for a key hangs,
	// the other keys of the call wait.
	Concurrency int

	// BufferItems and BufferBytes bound the read and not yet handled changes of a lease: 4,000 changes and 64 MiB by
	// default. The processor may read a page more. When the buffer is full, the processor sets aside failing and
	// hanging keys, see [FailurePolicy]. If that does not help, the processor reads nothing more and reports
	// [feed.ErrBufferFull].
	//
	// A lease remembers at most 5,000 unfinished changes among done changes: with a larger buffer the next owner may
	// repeat more. With a Concurrency of 1, a page is in memory, plus the next two pages of a backlog if the first page
	// is within half of both bounds. More is read only with MaxWait, or while changes fail.
	BufferItems int
	BufferBytes int64

	// OnFailure decides about changes the handler cannot handle. By default they are retried for ever.
	OnFailure FailurePolicy

	// Manual leaves checkpoints to [feed.Batch.Checkpoint]: a batch is done at the confirmation by the handler,
	// whatever the handler returns. If the handler returns nil and does not confirm the batch, the next owner of the
	// lease receives the batch again, and this owner does not, unless the batch is abandoned: see [feed.Batch.Abandon].
	// You cannot combine Manual with the MaxAttempts, MaxAge and DeadLetters of OnFailure, because they make
	// checkpoints of their own, nor with CheckpointItems and CheckpointEvery.
	Manual bool

	// CheckpointItems and CheckpointEvery make automatic checkpoints rarer: the processor makes a checkpoint when at
	// least CheckpointItems changes are done since the last checkpoint, or when CheckpointEvery has passed. If both are
	// zero, the processor makes a checkpoint whenever the position can move: after each batch if nothing fails. Done
	// changes after an unfinished change are noted in the lease within a second. After a crash, the changes handled
	// since the last checkpoint are redelivered; after an orderly stop none are.
	CheckpointItems int
	CheckpointEvery time.Duration

	Hooks Hooks
}

// A FailurePolicy decides about changes the handler cannot handle. The zero value retries them for ever.
//
// Without MaxAttempts and MaxAge, and with a Concurrency of 1, all changes arrive in the order of the feed: a failed
// batch is retried whole, for ever, and the lease waits. With any other setting, a failing batch of several partition
// keys is retried in two parts, divided by key. A batch of a single key is retried whole until the attempts are used
// up, then in two parts, divided by transaction, until the failing change is alone. Other keys go on meanwhile.
type FailurePolicy struct {
	// MaxAttempts is how often a change may fail, and MaxAge for how long, before the change is parked in DeadLetters.
	// Zero, the default, is no limit. If you set a limit without DeadLetters, the change is retried for ever, alone.
	//
	// The lease stores the attempts with the position for which they count. So a change also fails if the handler ends
	// the process. The lease also stores since when a change fails, to the second; after a merge of partitions this
	// time starts anew.
	//
	// If at least three changes have failed, and more keys have failed than succeeded meanwhile, the processor reports
	// an outage to [Hooks.Outage] and as [feed.ErrOutage]. During an outage nothing is parked, except a change which
	// has failed for MaxAge. The processor calls the handler only now and then to see whether the handler has
	// recovered. An outage is recognized only with MaxAttempts and DeadLetters: with MaxAge alone nothing is parked
	// sooner, outage or not.
	MaxAttempts int
	MaxAge      time.Duration

	// DeadLetters keeps the parked changes. If you set DeadLetters, set MaxAttempts or MaxAge too: without a limit
	// nothing is parked. DeadLetters excludes [Options.Manual], as MaxAttempts and MaxAge do, because parking a change
	// is a checkpoint not confirmed by the handler.
	DeadLetters feed.DeadLetters

	// HoldKeys parks the later changes of the key of a parked change too, so that their order is kept, until you
	// release the key. DeadLetters must then be a [feed.LetterBox]. A lease can hold at most 1,000 keys, fewer if they
	// are long. If another key would have to be held, the change waits, the key is set aside, and [feed.ErrTooManyHeld]
	// is reported.
	//
	// After a merge of partitions the lease no longer says since which change a key is held. If changes of a held key
	// are then redelivered, they are parked too, also those handled before the first failure. When you release the key,
	// the handler receives them once more.
	HoldKeys bool

	// MaxSetAside limits the partition keys of a lease that may be set aside, 100 by default and 1,000 at most. A key
	// is set aside when a change of the key has used up its attempts or cannot be parked, or when the buffer is full
	// and the key fails or has been in the handler for more than a second. The processor then forgets later changes of
	// the key. When the key goes on, the processor, also the next owner, reads these changes again by key, in order
	// with new changes. So they need no memory and delay no other key, and the position moves past them. In a unit
	// shared with another kind of processor the position waits before the oldest unfinished change.
	//
	// Once MaxSetAside keys are set aside, the changes of a further failing key stay in memory, up to
	// [Options.BufferItems] and [Options.BufferBytes]. When these are full, the processor reads nothing more. Setting
	// aside needs a [feed.Locator] as the source, and a limit or a Concurrency above 1.
	MaxSetAside int
}

// The defaults of [Options]; acquire, renew, expiration and poll are the defaults of the service's own processors.
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

// withDefaults replaces zero values by their defaults.
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
	o.Weight = cmp.Or(o.Weight, 1)
	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.OnFailure.MaxSetAside = cmp.Or(o.OnFailure.MaxSetAside, defaultMaxSetAside)
	o.BufferItems = cmp.Or(o.BufferItems, defaultBufferItems)
	o.BufferBytes = cmp.Or(o.BufferBytes, defaultBufferBytes)
	o.Hooks = withDefaultHooks(o.Hooks)
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

// validate checks options after withDefaults. validate also refuses combinations in which an option would be ignored in
// silence.
func (o Options) validate() error {
	for _, rule := range slices.Concat(o.rulesOfValues(), o.rulesOfCombinations()) {
		if !rule.ok {
			return &OptionError{rule.field, fmt.Sprint(rule.value), rule.want}
		}
	}
	return nil
}

type optionRule struct {
	ok    bool
	field string
	value any
	want  string
}

// rulesOfValues are the rules of each option by itself.
func (o Options) rulesOfValues() []optionRule {
	const (
		duration = "a positive duration, or 0 for the default"
		number   = "a positive number, or 0 for the default"
		none     = "a positive duration, or 0 for none"
	)
	return []optionRule{
		{
			strings.TrimSpace(o.Instance) != "", "Instance", strconv.Quote(o.Instance),
			"a name for this instance, such as the host's",
		},
		{
			len(o.Variant) <= maxVariant, "Variant", fmt.Sprintf("%d bytes", len(o.Variant)),
			fmt.Sprintf("at most %d bytes", maxVariant),
		},
		{o.Poll > 0, "Poll", o.Poll, duration},
		{o.Acquire > 0, "Acquire", o.Acquire, duration},
		{o.Renew > 0, "Renew", o.Renew, duration},
		{o.Expiration > 0, "Expiration", o.Expiration, duration},
		{o.Drain > 0, "Drain", o.Drain, duration},
		{o.HandlerTimeout > 0, "HandlerTimeout", o.HandlerTimeout, duration},
		{o.RetryMin > 0, "RetryMin", o.RetryMin, duration},
		{o.RetryMax > 0, "RetryMax", o.RetryMax, duration},
		{o.Mode <= feed.AllVersionsAndDeletes, "Mode", uint8(o.Mode), "LatestVersion or AllVersionsAndDeletes"},
		{o.MaxItems >= 0, "MaxItems", o.MaxItems, number},
		{o.MaxBytes >= 0, "MaxBytes", o.MaxBytes, number},
		{o.MinLeases >= 0, "MinLeases", o.MinLeases, number},
		{o.MaxLeases >= 0, "MaxLeases", o.MaxLeases, number},
		{
			o.Weight > 0 && o.Weight <= instance.MaxWeight, "Weight", o.Weight,
			fmt.Sprintf("1 to %d, or 0 for the default", instance.MaxWeight),
		},
		{o.CheckpointItems >= 0, "CheckpointItems", o.CheckpointItems, number},
		{o.Concurrency >= 0, "Concurrency", o.Concurrency, number},
		{o.BufferItems >= 0, "BufferItems", o.BufferItems, number},
		{o.BufferBytes >= 0, "BufferBytes", o.BufferBytes, number},
		{o.OnFailure.MaxAttempts >= 0, "OnFailure.MaxAttempts", o.OnFailure.MaxAttempts, number},
		{o.OnFailure.MaxSetAside >= 0, "OnFailure.MaxSetAside", o.OnFailure.MaxSetAside, number},
		{
			o.OnFailure.MaxSetAside <= notes.MaxAside, "OnFailure.MaxSetAside", o.OnFailure.MaxSetAside,
			fmt.Sprintf("at most %d, for which a lease has room", notes.MaxAside),
		},
		{
			o.MinLeases <= instance.MaxMinLeases, "MinLeases", o.MinLeases,
			fmt.Sprintf("at most %d", instance.MaxMinLeases),
		},
		{o.CheckpointEvery >= 0, "CheckpointEvery", o.CheckpointEvery, none},
		{o.MaxWait >= 0, "MaxWait", o.MaxWait, none},
		{o.OnFailure.MaxAge >= 0, "OnFailure.MaxAge", o.OnFailure.MaxAge, none},
	}
}

// rulesOfCombinations are those of options with an effect on each other.
func (o Options) rulesOfCombinations() []optionRule {
	_, box := o.OnFailure.DeadLetters.(feed.LetterBox)
	parts := o.toParts()
	return []optionRule{
		{o.Renew < parts.Trust(), "Renew", o.Renew, fmt.Sprintf("less than %v, which is Expiration minus its safety margin (%v)",
			parts.Trust(), parts.Margin())},
		{o.RetryMax >= o.RetryMin, "RetryMax", o.RetryMax, fmt.Sprintf("at least RetryMin (%v)", o.RetryMin)},
		{
			o.Mode == feed.LatestVersion || o.Start.IsNow(), "Start", o.Start,
			"now: all versions and deletes cannot start from the beginning or from a time",
		},
		{
			!o.Manual || o.CheckpointItems == 0 && o.CheckpointEvery == 0, "Manual", true,
			"false with CheckpointItems or CheckpointEvery, which are for automatic checkpoints",
		},
		{
			!o.Manual || !parts.HasPolicy() && o.OnFailure.DeadLetters == nil, "Manual", true,
			"false with a MaxAttempts, MaxAge or DeadLetters of OnFailure, which checkpoint without the " +
				"handler's word",
		},
		{
			o.OnFailure.DeadLetters == nil || parts.HasPolicy(), "OnFailure.DeadLetters",
			fmt.Sprintf("%T", o.OnFailure.DeadLetters),
			"MaxAttempts or MaxAge beside it: without a limit nothing is ever parked",
		},
		{
			!o.OnFailure.HoldKeys || box, "OnFailure.HoldKeys", true,
			"DeadLetters that are a LetterBox, to release what is held",
		},
		{o.MaxWait < o.HandlerTimeout, "MaxWait", o.MaxWait, fmt.Sprintf("less than HandlerTimeout (%v)",
			o.HandlerTimeout)},
	}
}

// toParts converts the options to those of the processor's parts.
func (o Options) toParts() instance.Options {
	return instance.Options{
		Instance: o.Instance, Variant: o.variant(), Start: o.Start, Mode: o.Mode, MaxItems: o.MaxItems,
		MinLeases: o.MinLeases, MaxLeases: o.MaxLeases, Weight: o.Weight, ShareByLoad: o.ShareByLoad,
		Poll: o.Poll, Acquire: o.Acquire, Renew: o.Renew, Expiration: o.Expiration, Drain: o.Drain,
		HandlerTimeout: o.HandlerTimeout,
		RetryMin:       o.RetryMin, RetryMax: o.RetryMax, MaxBytes: o.MaxBytes, MaxWait: o.MaxWait, Filter: o.Filter,
		Concurrency: o.Concurrency, BufferItems: o.BufferItems, BufferBytes: o.BufferBytes,
		MaxAttempts: o.OnFailure.MaxAttempts, MaxAge: o.OnFailure.MaxAge, DeadLetters: o.OnFailure.DeadLetters,
		MaxSetAside: o.OnFailure.MaxSetAside, HoldKeys: o.OnFailure.HoldKeys,
		Manual: o.Manual, CheckpointItems: o.CheckpointItems, CheckpointEvery: o.CheckpointEvery,
	}
}
