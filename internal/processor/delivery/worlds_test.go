package delivery

import "time"

// The worlds. Each has 10^3 to 10^5 states: many choices of one kind, and few of the others.

var worlds = []setting{
	{
		name: "failures", pages: "1a 2b 3c | 4a 5b", rules: Rules{Concurrency: 1, MaxAttempts: 2, CanPark: true},
		bounds: bounds{fail: 4, partial: 1, items: 1},
	},
	{
		name: "failures side by side", pages: "1a 2b | 3a 4b", width: 2, rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			CanPark: true,
		},
		bounds: bounds{fail: 3, partial: 1},
	},
	{
		name: "late, hopeless, cut", pages: "1a 2b | 3a 3a", width: 2, rules: Rules{
			Concurrency: 2, MaxAttempts: 2,
			CanPark: true,
		},
		bounds: bounds{late: 1, hopeless: 1, word: 1}, long: bounds{late: 1, hopeless: 1, cut: 1, fail: 1, word: 1},
	},
	{
		name: "no letters", pages: "1a 2b 3a", rules: Rules{
			Concurrency: 2, MaxAttempts: 1, CanReadKeys: true,
			MaxAside: 1,
		},
		bounds: bounds{fail: 3, hopeless: 1, room: 1, keyFails: 1},
	},
	{
		name: "transaction", pages: "1a 1a 1a | 2a 3b", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, CanPark: true,
			CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{fail: 4, items: 1, partial: 1},
	},
	{
		name: "age", pages: "1a 2b 3a", rules: Rules{Concurrency: 1, MaxAge: 3 * time.Second, CanPark: true},
		bounds: bounds{fail: 5, outage: 1},
	},
	{
		name: "age in an outage", pages: "1a 2b 3c", rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			MaxAge: 3 * time.Second, CanPark: true, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{outage: 1},
	},
	{
		name: "outage", pages: "1a 2b 3c | 4a", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, CanPark: true,
			HasBox: true,
		},
		bounds: bounds{outage: 1, fail: 1, cut: 1},
	},
	{
		name: "outage beside poison", pages: "1a 2b 3c | 4a", poison: "1", rules: Rules{
			Concurrency: 1, MaxAttempts: 2,
			CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{outage: 1},
	},
	{
		name: "hold", pages: "1a 2b 3a | 4a", poison: "1", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, CanPark: true,
			HoldKeys: true, HasBox: true,
		},
		bounds: bounds{refuse: 1, retry: 1, release: 1}, long: bounds{refuse: 1, fail: 1, retry: 1, release: 1},
	},
	{
		name: "hold side by side", pages: "1a 2b 3a | 4a", width: 2, rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{refuse: 1, fail: 2, release: 1, withdraw: 1, boxFails: 1},
	},
	{
		name: "hold too many", pages: "1a 2b 3a 4b", poison: "1 2", rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true, MaxHeld: 1, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{fail: 1, release: 1},
	},
	{
		name: "retry", pages: "1a | 2a 3b", rules: Rules{Concurrency: 1, MaxAttempts: 1, CanPark: true, HasBox: true},
		bounds: bounds{fail: 2, retry: 2, withdraw: 1, boxFails: 1}, long: bounds{
			fail: 3, retry: 2, withdraw: 1,
			boxFails: 1,
		},
	},
	{
		name: "retry within a transaction", pages: "1a 1a 2a", rules: Rules{
			Concurrency: 1, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{fail: 4, retry: 1, release: 1},
	},
	{
		name: "retry, release and crash", pages: "1a 2a | 3a", rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{fail: 1, retry: 1, crash: 1}, long: bounds{fail: 1, retry: 1, release: 1, crash: 1},
	},
	{
		name: "retry and stop", pages: "1a 2a | 3a", lazy: true, rules: Rules{
			Concurrency: 1, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{fail: 2, retry: 1, stop: 1}, long: bounds{fail: 2, retry: 1, release: 1, stop: 2},
	},
	{
		name: "by hand", pages: "1a 2b | 3a", rules: Rules{Concurrency: 1, MaxAttempts: 2, ByHand: true},
		bounds: bounds{fail: 1, byHand: 2, crash: 1}, long: bounds{fail: 2, late: 1, byHand: 3, crash: 1},
	},
	{
		name: "by hand side by side", pages: "1a 2b 3a", width: 2, rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			ByHand: true, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{fail: 2, byHand: 2, room: 1}, long: bounds{fail: 2, late: 1, byHand: 3, room: 1},
	},
	{
		name: "in order", pages: "1a 2b 3a | 4b", rules: Rules{
			Concurrency: 2, InOrder: true, MaxAttempts: 1,
			CanPark: true, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{fail: 3, partial: 1, crash: 1},
	},
	{
		name: "set aside", pages: "1a 2b 3a | 4a 5b", rules: Rules{
			Concurrency: 1, MaxAttempts: 2, CanReadKeys: true,
			MaxAside: 1, CanPark: true,
		},
		bounds: bounds{fail: 3, room: 1, keyFails: 1, keyLags: 1},
	},
	{
		name: "set aside two", pages: "1a 2b 3a 4b | 5a", width: 2, rules: Rules{
			Concurrency: 2, CanReadKeys: true,
			MaxAside: 2, MaxAttempts: 1, CanPark: true,
		},
		bounds: bounds{fail: 1, room: 2}, long: bounds{fail: 2, room: 2, keyLags: 1},
	},
	{
		name: "set aside, superseded", pages: "1a 2a | 3a 4b 5a", hidden: "2 3", poison: "1",
		rules:  Rules{Concurrency: 1, MaxAttempts: 1, CanPark: true, CanReadKeys: true, MaxAside: 1},
		bounds: bounds{refuse: 2, crash: 1, keyLags: 1},
	},
	{
		name: "set aside and crash", pages: "1a 2b 3a | 4a", width: 2, rules: Rules{
			Concurrency: 2, CanReadKeys: true,
			MaxAside: 1, MaxAttempts: 2, CanPark: true,
		},
		bounds: bounds{fail: 1, room: 1, crash: 1},
	},
	{
		name: "set aside and held", pages: "1a 2a 3b | 4a", poison: "1", rules: Rules{
			Concurrency: 1, CanReadKeys: true,
			MaxAside: 1, MaxAttempts: 1, CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{refuse: 1, room: 1, release: 1, clean: 1}, long: bounds{
			refuse: 2, room: 1, release: 1,
			clean: 1,
		},
	},
	{
		name: "set aside, shared", pages: "1a 2b 3a | 4a", shared: true, rules: Rules{
			Concurrency: 1, CanReadKeys: true,
			MaxAside: 1, MaxAttempts: 1, CanPark: true,
		},
		bounds: bounds{fail: 1, refuse: 1, room: 1, crash: 1, keyFails: 1},
	},
	{
		name: "set aside within a page, shared", pages: "1b 2a | 3a 4b", width: 2, shared: true,
		rules: Rules{
			Concurrency: 2, MaxItems: 1, CanReadKeys: true, MaxAside: 2, MaxAttempts: 1, CanPark: true,
			After: knowsLSNs,
		},
		bounds: bounds{refuse: 1, room: 1, crash: 1}, long: bounds{fail: 1, refuse: 1, room: 1, crash: 1},
	},
	{
		name: "crash", pages: "1a 2b | 3a", width: 2, rules: Rules{Concurrency: 2, MaxAttempts: 2, CanPark: true},
		bounds: bounds{fail: 1, crash: 2}, long: bounds{fail: 2, crash: 2},
	},
	{
		name: "crash one by one", pages: "1a 2b | 3a", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, MaxItems: 1,
			CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{fail: 1, crash: 2}, long: bounds{fail: 1, crash: 3},
	},
	{
		name: "crash of a transaction", pages: "1a 1a | 2a", rules: Rules{
			Concurrency: 1, MaxAttempts: 1,
			CanPark: true,
		},
		bounds: bounds{fail: 1, crash: 3},
	},
	{
		name: "recall and crash", pages: "1a | 2b 3c", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, MaxItems: 1,
			CanPark: true, HasBox: true,
		},
		bounds: bounds{outage: 1, crash: 1},
	},
	{
		name: "lazy", pages: "1a 2b 3a", lazy: true, width: 2, rules: Rules{
			Concurrency: 2, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{fail: 2, refuse: 1, release: 1},
	},
	{
		name: "cut and retry", pages: "1a | 2a 3b", lazy: true, rules: Rules{
			Concurrency: 1, MaxAttempts: 1,
			CanPark: true, HasBox: true,
		},
		bounds: bounds{fail: 1, cut: 1, retry: 1},
	},
	{
		name: "each alone", pages: "1a 1a 2a 3b", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, CanPark: true,
			HoldKeys: true, HasBox: true,
		},
		bounds: bounds{fail: 1, items: 1, release: 1},
	},
	{
		name: "poison behind a failure", pages: "1a 1a 2a 3b", rules: Rules{
			Concurrency: 1, MaxAttempts: 1,
			CanPark: true, HoldKeys: true, HasBox: true, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{fail: 2, apart: 1, release: 1, crash: 1}, long: bounds{fail: 3, apart: 1, release: 1, crash: 1},
	},
	{
		name: "age of a batch in an outage", pages: "1a 2b 3c | 4d 4d", rules: Rules{
			Concurrency: 1, MaxAttempts: 2,
			MaxAge: 3 * time.Second, CanPark: true,
		},
		bounds: bounds{outage: 1},
	},
	{
		name: "recall in an outage", pages: "1a | 2b 3c 4d", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, CanPark: true,
			HasBox: true,
		},
		bounds: bounds{outage: 1, word: 1},
	},
	{
		name: "skip", pages: "1a 2b 3a | 4a", rules: Rules{Concurrency: 1, MaxAttempts: 2, CanPark: true},
		bounds: bounds{fail: 1, skip: 1, crash: 1}, long: bounds{fail: 3, skip: 2, crash: 1},
	},
	{
		name: "skip within a transaction", pages: "1a 1a 2b | 3a", rules: Rules{Concurrency: 1, InOrder: true},
		bounds: bounds{fail: 1, items: 1, skip: 1, crash: 1}, long: bounds{fail: 2, items: 1, skip: 2, crash: 1},
	},
	{
		name: "skip and set aside", pages: "1a 2a 3b | 4a", width: 2, rules: Rules{
			Concurrency: 2, CanReadKeys: true, MaxAside: 1, MaxAttempts: 2,
		},
		bounds: bounds{fail: 1, room: 1, skip: 1, crash: 1}, long: bounds{fail: 3, room: 1, skip: 2, crash: 1},
	},
	{
		name: "skip a poison whose letter is refused", pages: "1a 2a 3b | 4a", poison: "1", rules: Rules{
			Concurrency: 1, MaxAttempts: 1, CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{refuse: 1, skip: 1}, long: bounds{refuse: 1, skip: 1, crash: 1, release: 1},
	},
	{
		name: "replay", pages: "1a 2b 3a | 4a 5b", width: 2, rules: Rules{
			Concurrency: 2, CanReadKeys: true, MaxAside: 2,
		},
		bounds: bounds{replay: 1, crash: 1, keyLags: 1}, long: bounds{fail: 1, replay: 2, crash: 1, keyLags: 1},
	},
	{
		name: "replay of a held key", pages: "1a 2a 3b | 4a", poison: "1", rules: Rules{
			Concurrency: 1, CanReadKeys: true, MaxAside: 1, MaxAttempts: 1, CanPark: true, HoldKeys: true, HasBox: true,
		},
		bounds: bounds{refuse: 1, replay: 1, release: 1},
		long:   bounds{refuse: 1, replay: 1, release: 1, retry: 1, crash: 1},
	},
	{
		name: "replay in order", pages: "1a 2b 3a | 4b", rules: Rules{
			Concurrency: 1, InOrder: true, CanReadKeys: true, MaxAside: 1,
		},
		bounds: bounds{replay: 1, crash: 1}, long: bounds{fail: 1, replay: 2, crash: 1},
	},
	{
		name: "skip and replay", pages: "1a 2b | 3a", poison: "1", rules: Rules{
			Concurrency: 1, CanReadKeys: true, MaxAside: 1, MaxAttempts: 2,
		},
		bounds: bounds{skip: 1, replay: 1}, long: bounds{skip: 2, replay: 1, crash: 1},
	},
}
