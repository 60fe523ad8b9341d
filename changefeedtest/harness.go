package changefeedtest

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The suites know a store only through a harness, so they prove any store: ours, the client of an account, or your own.
// If a store lacks an ability, it says so in a list. If the suites skipped its tests automatically, a broken ability
// would look like a missing one.

// Harness makes a store for the suites. A suite needs the functions for its subject, and Lacks must list each missing
// ability of the store.
type Harness struct {
	// Container makes an empty container with one physical partition. Container ends its processes and goroutines with
	// t.Cleanup.
	Container func(t *testing.T, c Container) Store

	// Leases makes an empty lease container.
	Leases func(t *testing.T) LeaseContainer

	// Lacks are the missing abilities of the store.
	Lacks []Ability

	// Virtual runs each test in a bubble of testing/synctest: hours pass at once. The store must live in the bubble:
	// use no sockets, because a bubble does not notice that a goroutine waits for a socket.
	Virtual bool

	// Pass makes time pass by the store's clock. If you set Virtual, Pass may be nil; without Virtual, a nil Pass
	// requires that Lacks contains [PassingTime].
	Pass func(t *testing.T, d time.Duration)
}

// Container describes a monitored container for a test.
type Container struct {
	Paths     []string      // partition key paths; the suites use /pk, or /pk and /sub
	Retention time.Duration // of all versions and deletes, previous images included; 0 is none
	Expiry    bool          // items with a ttl expire
	HashV1    bool          // keys are hashed as in version 1, in which a place contains the beginning of the key
}

// Store is a monitored container under test.
type Store struct {
	Source    feed.Source
	Committer feed.Committer

	// Split divides a physical partition into two, and returns when the children exist. The store chooses the edge.
	Split func(t *testing.T, id string)
	// Merge joins two neighbouring physical partitions.
	Merge func(t *testing.T, left, right string)
	// Throttle makes the store refuse the next read for a while.
	Throttle func(t *testing.T)
}

// LeaseContainer is a lease container under test.
type LeaseContainer struct {
	// Unit returns a client of the deployment unit with this processor name. If two clients have the same name, they
	// share their records.
	Unit func(t *testing.T, processor string) feed.LeaseStore
	// Put writes a document as another program would, and replaces the document with its id.
	Put func(t *testing.T, doc json.RawMessage)
	// WithoutDelete returns a client without the right to delete, because many operators do not grant this right to
	// their services.
	WithoutDelete func(t *testing.T, processor string) feed.LeaseStore
}

// Ability is a property which a store may lack.
type Ability string

// The abilities which some stores lack.
const (
	Splitting        Ability = "split on demand"
	Merging          Ability = "merge on demand"
	SubRanges        Ability = "reads of a part of a partition"
	KeyReads         Ability = "reads of one logical partition"
	HierarchicalKeys Ability = "hierarchical partition keys"
	OldHashes        Ability = "partition keys hashed as in version 1"
	AllVersions      Ability = "all versions and deletes"
	PreviousImages   Ability = "previous images"
	Retention        Ability = "a retention that ends" // of all versions and deletes: older positions are ErrTooOld
	Patching         Ability = "patches"
	SystemProperties Ability = "_etag and _ts in the body of an item"
	Expiry           Ability = "items that expire"
	LeaseExpiry      Ability = "lease records that expire"
	PassingTime      Ability = "time that passes when told"
	Waiting          Ability = "feed.Waiter"
	Counting         Ability = "feed.Counter"
	Locating         Ability = "feed.Locator"
	Sequencing       Ability = "feed.Sequencer"
	Following        Ability = "feed.Follower"
	Throttling       Ability = "throttling on demand"
	ForeignWrites    Ability = "lease documents written by others"
	DeleteRights     Ability = "clients without the right to delete"
)

func (h Harness) lacksAbility(a Ability) bool { return slices.Contains(h.Lacks, a) }

// hasAll reports whether the store has all abilities, and logs the first missing ability.
func (h Harness) hasAll(t *testing.T, needs []Ability) bool {
	t.Helper()
	for _, a := range needs {
		if h.lacksAbility(a) {
			t.Logf("not tested: the store lacks %s", a)
			return false
		}
		if a == PassingTime && h.Pass == nil && !h.Virtual {
			t.Fatalf("Harness.Pass is nil: set it or Virtual, or list %q in Lacks", a)
		}
	}
	return true
}

// shortly is long enough for a wait to begin, and short if time is real.
const shortly = 50 * time.Millisecond

// runIn runs a test, in a bubble if the harness is virtual.
func (h Harness) runIn(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if h.Virtual {
		synctest.Test(t, test)
		return
	}
	test(t)
}

// passTime makes time pass.
func (h Harness) passTime(t *testing.T, d time.Duration) {
	t.Helper()
	if h.Pass != nil {
		h.Pass(t, d)
		return
	}
	if err := wait(t.Context(), d); err != nil {
		t.Fatalf("pass %v: %v", d, err)
	}
}

// needHook fails the test if the harness lacks the function of a declared ability.
func needHook(t *testing.T, has bool, hook string, a Ability) {
	t.Helper()
	if !has {
		t.Fatalf("%s: provide it or list %q in Lacks", hook, a)
	}
}
