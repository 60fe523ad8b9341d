package alarms_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var incidents = []incident{
	{
		name: "0_healthy", about: "three instances, 2 documents a second, nothing wrong",
		stage: func(s *stage) { s.begin(3, parking()); s.pass(15 * time.Minute) },
	},
	{
		name: "0b_idle", about: "three instances, and nothing is written",
		stage: func(s *stage) {
			for i := range 3 {
				s.start(string(rune('a'+i)), "mailer", changefeed.Options{})
			}
			s.pass(quiet + 15*time.Minute)
		},
	},
	{
		name: "0c_restarts", about: "three instances are restarted one after the other",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{Variant: "mail.sh 2"})
			for _, in := range s.instances {
				s.upgrade(in)
				s.pass(30 * time.Second)
			}
			s.pass(5 * time.Minute)
		},
	},
	{
		name: "0d_single_restart", about: "the only instance is restarted, which takes 30 s",
		stage: func(s *stage) {
			s.begin(1, changefeed.Options{Variant: "mail.sh 2"})
			only := s.instances[0]
			s.stop(only)
			s.pass(interval)
			s.upgrade(only)
			s.pass(5 * time.Minute)
		},
	},
	{
		name: "1_poison", about: "a change fails for ever, without dead letters",
		stage: func(s *stage) {
			s.handle(failOn(isPoison))
			s.begin(3, changefeed.Options{})
			s.put("city-1", "poison", "")
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedChangeFails/warn": 75 * time.Second,
			"ChangefeedChangeWaits/warn": 75 * time.Second,
			"ChangefeedChangeWaits/page": 165 * time.Second,
		},
	},
	{
		name: "1b_poison_parked", about: "a change fails for ever, with dead letters and held keys",
		stage: func(s *stage) {
			s.handle(failOn(isPoison))
			s.begin(3, parking())
			s.put("city-1", "poison", "")
			s.pass(8 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedParked/warn":   60 * time.Second,
			"ChangefeedKeysHeld/page": 360 * time.Second,
		},
	},
	{
		name: "1c_key_stuck", about: "a change fails for ever, without dead letters, and other keys go on",
		stage: func(s *stage) {
			s.handle(failOn(isPoison))
			s.begin(3, changefeed.Options{
				Concurrency: 4, OnFailure: changefeed.FailurePolicy{MaxAttempts: 5},
			})
			s.put("city-1", "poison", "")
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedChangeFails/warn": 75 * time.Second, "ChangefeedChangeWaits/warn": 75 * time.Second,
			"ChangefeedChangeWaits/page": 165 * time.Second, "ChangefeedKeysStuck/warn": 105 * time.Second,
		},
	},
	{
		name: "2_downstream_down", about: "a system that the handler needs is away for 3 minutes",
		stage: func(s *stage) {
			var down atomic.Bool
			s.handle(failOn(func(*feed.Change) bool { return down.Load() }))
			s.begin(3, parking())
			down.Store(true)
			s.pass(3 * time.Minute)
			s.look()
			down.Store(false)
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedParked/warn":      60 * time.Second,
			"ChangefeedOutage/page":      75 * time.Second,
			"ChangefeedChangeWaits/warn": 75 * time.Second,
			"ChangefeedChangeWaits/page": 165 * time.Second,
		},
	},
	{
		name: "3_handler_hangs", about: "the handler hangs for one change, for 4 minutes",
		stage: func(s *stage) {
			s.handle(func(ctx context.Context, b *feed.Batch) error {
				for i := range b.Changes {
					if isPoison(&b.Changes[i]) {
						return pauseFor(ctx, 4*time.Minute)
					}
				}
				return handleQuickly(ctx, b)
			})
			s.begin(3, changefeed.Options{})
			s.put("city-1", "poison", "")
			s.pass(3 * time.Minute)
			s.look()
			s.pass(3 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedBatchHangs/warn":  75 * time.Second,
			"ChangefeedChangeWaits/warn": 75 * time.Second,
			"ChangefeedChangeWaits/page": 165 * time.Second,
		},
	},
	{
		name: "4_instance_frozen", about: "an instance is frozen for 90 s, out of the reach of Prometheus",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			frozen := s.instances[1]
			frozen.isAway = true
			frozen.fault.Store(errNoRoute)
			s.pass(45 * time.Second)
			s.look()
			s.pass(45 * time.Second)
			frozen.isAway = false
			frozen.fault.Store(errNone)
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedLeaseSilent/warn": 45 * time.Second,
			"ChangefeedTookOver/warn":    105 * time.Second,
		},
		may: []string{"ChangefeedLeaseSilent/page", "ChangefeedLeasesLost/warn", "ChangefeedStoreErrors/warn"},
	},
	{
		name: "5_instance_killed", about: "an instance is killed and does not come back",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			s.kill(s.instances[1])
			s.pass(90 * time.Second)
			s.look()
			s.pass(330 * time.Second)
		},
		fires: map[string]time.Duration{
			"ChangefeedLeaseSilent/warn": 45 * time.Second,
			"ChangefeedTookOver/warn":    105 * time.Second,
		},
		may: []string{"ChangefeedLeaseSilent/page"},
	},
	{
		name: "5b_all_killed", about: "all instances are killed, and a program without a processor watches the lag",
		stage: func(s *stage) {
			s.newStaged("watcher", "mailer")
			s.begin(3, changefeed.Options{})
			for _, in := range s.instances[1:] {
				s.kill(in)
			}
			s.pass(6 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedLeaseSilent/warn": 45 * time.Second, "ChangefeedLeaseSilent/page": 120 * time.Second,
			"ChangefeedNobodyWorks/page": 105 * time.Second, "ChangefeedUnitWaits/warn": 135 * time.Second,
			"ChangefeedUnitWaits/page": 225 * time.Second, "ChangefeedLagGrows/warn": 420 * time.Second,
		},
	},
	{
		name: "6_account_away", about: "the account is away for 2 minutes",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			for _, in := range s.instances {
				in.fault.Store(errNoRoute)
			}
			s.pass(2 * time.Minute)
			s.look()
			for _, in := range s.instances {
				in.fault.Store(errNone)
			}
			s.pass(6 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedStoreErrors/warn":      45 * time.Second,
			"ChangefeedLeaseStoreSilent/warn": 75 * time.Second,
			"ChangefeedLeaseStoreSilent/page": 105 * time.Second,
			"ChangefeedLeasesLost/warn":       105 * time.Second,
			"ChangefeedLeaseSilent/warn":      150 * time.Second,
		},
		may: []string{"ChangefeedTookOver/warn", "ChangefeedLeaseSilent/page", "ChangefeedUnhealthy/warn"},
	},
	{
		name: "7_key_refused", about: "the key of the instances is no longer valid",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			for _, in := range s.instances {
				in.fault.Store(feed.ErrForbidden)
			}
			s.pass(4 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedStoreErrors/warn":      45 * time.Second,
			"ChangefeedLeaseStoreSilent/warn": 75 * time.Second,
			"ChangefeedLeaseStoreSilent/page": 105 * time.Second,
			"ChangefeedLeasesLost/warn":       105 * time.Second,
			"ChangefeedUnhealthy/warn":        165 * time.Second,
		},
	},
	{
		name: "9_leases_deleted", about: "the lease container is deleted, and 3 minutes later the unit begins anew",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			s.check(s.db.DeleteContainer(s.t.Context(), s.leases.ID()))
			s.pass(3 * time.Minute)
			s.look()
			for _, in := range s.instances {
				in.isAway = true // its process has ended
			}
			s.leases = s.create(docstore.LeaseSpec("leases"))
			s.start("d", "mailer", changefeed.Options{Start: feed.FromNow()})
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedStoreErrors/warn":    30 * time.Second,
			"ChangefeedLeasesLost/warn":     45 * time.Second,
			"ChangefeedNobodyWorks/page":    105 * time.Second,
			"ChangefeedUnhealthy/warn":      165 * time.Second,
			"ChangefeedUnitBegan/info":      210 * time.Second,
			"ChangefeedUnitBeganAgain/page": 210 * time.Second,
			"ChangefeedUnitPasses/warn":     210 * time.Second,
		},
		may: []string{"ChangefeedLeaseStoreSilent/warn"},
	},
	{
		name: "10_two_handlers", about: "two handlers have one name",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{Variant: "mail.sh"})
			s.start("x", "mailer", changefeed.Options{Variant: "other.sh"})
			s.pass(13 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedInstancesDiffer/warn": 645 * time.Second,
		},
	},
	{
		name: "11_backlog", about: "a backlog of 20,000 that is worked off",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{MaxItems: 10})
			s.handle(func(ctx context.Context, _ *feed.Batch) error { return pauseFor(ctx, time.Second) })
			s.putMany(20000)
			s.pass(2 * time.Minute)
			s.look()
			s.pass(10 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedChangeWaits/warn": 75 * time.Second,
			"ChangefeedBacklog/info":     240 * time.Second,
		},
		may: []string{"ChangefeedChangeWaits/page", "ChangefeedLagGrows/warn"},
	},
	{
		name: "11b_too_slow", about: "more is written than handled",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{MaxItems: 1})
			s.handle(func(ctx context.Context, _ *feed.Batch) error { return pauseFor(ctx, 4*time.Second) })
			s.pass(14 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedChangeWaits/warn": 120 * time.Second,
			"ChangefeedChangeWaits/page": 300 * time.Second,
			"ChangefeedLagGrows/warn":    450 * time.Second,
		},
	},
	{
		name: "11c_small_pages", about: "a backlog as in 11, with pages of 100 changes",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{MaxItems: 10, BufferItems: 100})
			s.handle(func(ctx context.Context, _ *feed.Batch) error { return pauseFor(ctx, time.Second) })
			s.putMany(20000)
			s.pass(12 * time.Minute)
		},
		fires: map[string]time.Duration{"ChangefeedBacklog/info": 240 * time.Second},
	},
	{
		name: "12_webhook_refuses", about: "the webhook of a relay answers 500 for each event",
		stage: func(s *stage) {
			s.startRelay("events", refusingPublisher{"order-bad"})
			for i := range int(quiet / time.Minute) {
				s.putEvent(fmt.Sprint("order-", i), 86400)
				s.pass(time.Minute)
			}
			s.putEvent("order-bad", 3000)
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedChangeFails/warn":       75 * time.Second,
			"ChangefeedRelayRefused/warn":      90 * time.Second,
			"ChangefeedRelayEventWaits/page":   105 * time.Second,
			"ChangefeedRelayEventExpires/page": 105 * time.Second,
		},
	},
	{
		name: "13_mistyped_name", about: "an instance with a mistyped name begins a unit",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			s.start("m", "maler", changefeed.Options{Start: feed.FromNow()})
			s.pass(12 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedUnitBegan/info":  45 * time.Second,
			"ChangefeedUnitPasses/warn": 45 * time.Second,
		},
	},
	{
		name: "15_idle_instances", about: "there are 8 instances for 4 leases",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			for i := range 5 {
				s.start(fmt.Sprint("idle-", i), "mailer", changefeed.Options{})
			}
			s.pass(12 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedInstancesIdle/info": 690 * time.Second,
		},
	},
	{
		name: "16_replay", about: "the unit handles all changes again, at the wish of an operator",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			s.reset()
			s.pass(5 * time.Minute)
		},
	},
	{
		name: "16b_paused", about: "an operator pauses the unit and forgets the pause",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			s.pause()
			s.pass(5 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedUnitWaits/warn": 150 * time.Second, "ChangefeedUnitWaits/page": 240 * time.Second,
		},
	},
	{
		name: "17_half_upgrade", about: "an upgrade takes 4 minutes, and later another stops half way",
		stage: func(s *stage) {
			s.begin(3, changefeed.Options{})
			s.upgrade(s.instances[0])
			s.pass(4 * time.Minute)
			s.upgrade(s.instances[1])
			s.upgrade(s.instances[2])
			s.pass(2 * time.Minute)
			s.start("old", "mailer", changefeed.Options{})
			s.pass(13 * time.Minute)
		},
		fires: map[string]time.Duration{
			"ChangefeedInstancesDiffer/warn": 1035 * time.Second,
		},
	},
}
