package alarms_test

import (
	"context"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// shows has what people recognise each incident by on the page.
var shows = map[string][]string{
	"0_healthy":         {"4 leases, 3 instances, nothing behind"},
	"0b_idle":           {"4 leases, 3 instances, nothing behind"},
	"0c_restarts":       {"4 leases, 3 instances, nothing behind"},
	"0d_single_restart": {"4 leases, 1 instance, nothing behind"},
	"1_poison": {
		"the batch in hand has failed ", "the oldest for 5m",
	},
	"1b_poison_parked": {
		"changes of keys wait behind a dead letter", "nothing behind but the changes of 1 held key, in dead letters",
		"changefeed dlq retry --all handles their letters again",
	},
	"1c_key_stuck": {"changes of keys fail, and are retried apart", "partition keys set aside, to be read again: 1"},
	"2_downstream_down": {
		"the handler lacks what it needs, so nothing is handled", "mend what the handler needs, such as a database",
		"outage: several changes fail and hardly any succeeds, so none is parked for it",
	},
	"3_handler_hangs": {"a batch has been in the handler for 3m", "(usually 10ms): 1 change"},
	"4_instance_frozen": {
		"its owner has been silent for ", ": others take over in ", "see whether the owner hangs",
	},
	"5_instance_killed": {"gone: it has shown no life for 1m", "4 leases, 2 instances"},
	"5b_all_killed":     {"no instance runs", "start an instance: nobody else works on these leases"},
	"6_account_away":    {"nobody knows how the unit is: read leases: no route to the account"},
	"7_key_refused":     {"nobody knows how the unit is: read leases: forbidden"},
	"8_disk_full":       {"disk is full"},
	"9_leases_deleted":  {"the leases of the unit are gone: the lease container is missing"},
	"10_two_handlers":   {"instances differ: a, b, c run mail.sh; x runs other.sh", "if two handlers share the name by mistake"},
	"11_backlog":        {" changes behind, the oldest for 2m", " handled a second, caught up in "},
	"11b_too_slow":      {"changes behind, the oldest for", "handled a second"},
	"11c_small_pages":   {"4 leases, 3 instances"},
	"12_webhook_refuses": {
		"The last call has failed: 500 Internal Server Error", "the batch in hand has failed ",
		`publish Renamed "order-bad-event" of key "order-bad": 500 Internal Server Error`,
	},
	"13_mistyped_name": {
		"unit maler on the same container has a similar name, and each of the two handles every change",
	},
	"14_wrong_clock":    {"the clock of b is 10m ahead of that of the lease store", "set the clock, as with NTP"},
	"15_idle_instances": {"4 of 8 instances idle", "stop some, split a partition, or cut leases finer"},
	"16_replay":         {"lease released", "reset"},
	"16b_paused":        {"the lease is paused", "paused since 00:16:00: changefeed leases resume ends that"},
	"17_half_upgrade":   {"instances differ: a, b, c run mail.sh 2; old runs a handler without a name"},
}

// ofServers are incidents that a server sees, or an instance of which no alarm of an instance tells.
var ofServers = []incident{
	{
		name: "8_disk_full", about: "the disk of the server is full",
		stage: func(s *stage) { s.begin(1, changefeed.Options{}); s.isFull.Store(true); s.pass(time.Minute) },
	},
	{
		name: "14_wrong_clock", about: "the clock of an instance is 10 minutes ahead",
		stage: func(s *stage) {
			s.begin(1, changefeed.Options{})
			s.ahead = 10 * time.Minute
			s.start("b", "mailer", changefeed.Options{})
			s.pass(2 * time.Minute)
		},
	},
}

// early is a lease store of an instance whose clock is ahead.
type early struct {
	feed.LeaseStore
	by time.Duration
}

func (e early) Create(ctx context.Context, r feed.Record) (feed.Record, error) {
	r.Timestamp = r.Timestamp.Add(e.by)
	return e.LeaseStore.Create(ctx, r)
}

func (e early) Update(ctx context.Context, r feed.Record) (feed.Record, error) {
	r.Timestamp = r.Timestamp.Add(e.by)
	return e.LeaseStore.Update(ctx, r)
}
