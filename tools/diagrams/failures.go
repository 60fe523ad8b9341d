package main

func drawFailure() *diagram {
	d := &diagram{
		name: "failure", height: 330, title: "How the processor finds the failing change",
		desc: "A batch with changes of three keys fails. It is divided by key and tried again. The halves that succeed " +
			"are done. The half that fails is divided until the failing change is alone. When its attempts are used up " +
			"and other keys succeed, it is parked among the dead letters, and the feed goes on.",
	}
	d.note(12, 36, "1  the batch fails")
	d.cells(240, 18, failed, "O1", "O2", "R1", "K1", "K2")
	d.note(12, 96, "2  pause, then in two")
	d.note(28, 114, "parts, by key")
	d.cells(240, 80, done, "O1", "O2")
	d.cells(340, 80, failed, "R1", "K1", "K2")
	d.note(12, 160, "3  in two parts again")
	d.cells(340, 142, done, "R1")
	d.cells(390, 142, failed, "K1", "K2")
	d.note(12, 222, "4  one key: tried until its")
	d.note(28, 240, "attempts are used up,")
	d.note(28, 258, "then by transaction")
	d.cells(390, 206, failed, "K1")
	d.cells(436, 206, pending, "K2")
	d.arrow(310, 48, 275, 78)
	d.arrow(310, 48, 375, 78)
	d.arrow(385, 110, 357, 140)
	d.arrow(385, 110, 412, 140)
	d.arrow(418, 172, 406, 204)
	d.arrow(418, 172, 448, 204)
	d.arrow(404, 236, 404, 274)
	d.box(300, 276, 220, 40, parked, "dead letter K1")
	d.arrow(468, 220, 520, 220)
	d.note(524, 216, "next, or held")
	d.note(524, 234, "behind K1")
	d.note(12, 300, "5  parked, if other keys succeed")
	return d
}

func drawHeldKey() *diagram {
	d := &diagram{
		name: "held-key", height: 250, title: "A held key",
		desc: "The first change of key K failed and is parked. With HoldKeys, later changes of K are parked behind it, " +
			"and other keys go on. After a retry that succeeds, or a release without the first change, the held " +
			"changes are delivered in order, and the key is free.",
	}
	d.note(12, 36, "the feed")
	x := d.cells(110, 18, failed, "K1")
	x = d.cells(x, 18, done, "O1", "R1")
	x = d.cells(x, 18, parked, "K2")
	x = d.cells(x, 18, done, "O2")
	x = d.cells(x, 18, parked, "K3")
	d.cells(x, 18, done, "R2")
	d.arrow(124, 48, 124, 84)
	d.arrow(220, 48, 180, 84)
	d.arrow(284, 48, 230, 84)
	d.frame(90, 86, 200, 76, "dead letters of key K")
	d.cells(104, 118, failed, "K1")
	d.cells(140, 118, parked, "K2", "K3")
	d.note(212, 137, "in order")
	d.note(350, 62, "O and R are delivered")
	d.box(330, 84, 296, 34, own, "dlq retry: K1, then K2, K3")
	d.box(330, 128, 296, 34, own, "dlq release: K2, K3 without K1")
	d.arrow(290, 110, 327, 101)
	d.arrow(290, 136, 327, 145)
	d.arrow(478, 162, 478, 188)
	d.note(12, 212, "the handler receives")
	x = d.cells(160, 194, done, "K1", "K2", "K3")
	d.note(x+8, 212, "in order; then the key is free")
	d.note(12, 240, "The lease stores which keys are held.")
	return d
}

func drawSetAside() *diagram {
	d := &diagram{
		name: "set-aside", height: 232, title: "A key that is set aside",
		desc: "A change of key K cannot be handled or parked now. The lease stores the position of this key. The " +
			"position of the lease moves on with the other keys. When K can continue, the processor reads the changes " +
			"of K again from the position of the key.",
	}
	d.note(12, 50, "the feed")
	x := d.cells(100, 32, done, "O1")
	keyAt := x - 2
	x = d.cells(x, 32, failed, "K1")
	x = d.cells(x, 32, done, "O2", "R1")
	x = d.cells(x, 32, pending, "K2")
	x = d.cells(x, 32, done, "O3")
	x = d.cells(x, 32, pending, "K3")
	x = d.cells(x, 32, done, "R2")
	leaseAt := x - 2
	x = d.cells(x, 32, inHand, "O4", "R3")
	d.cells(x, 32, pending, "O5")
	d.line(keyAt, 20, keyAt, 92, true)
	d.label(keyAt, 108, "position of key K")
	d.line(leaseAt, 20, leaseAt, 92, true)
	d.label(leaseAt, 108, "position of the lease")
	d.note(12, 152, "later: K can continue, and is read by key, beside the feed")
	d.note(12, 190, "key K")
	d.arrow(80, 184, 98, 184)
	x = d.cells(104, 170, done, "K1", "K2", "K3")
	d.note(x+8, 190, "until K has caught up with the feed")
	d.note(12, 220, "The changes in between need no memory, and block no other key.")
	return d
}

func drawOutage() *diagram {
	d := &diagram{
		name: "outage", height: 240, title: "An outage",
		desc: "The database that the handler needs is away. Three keys fail, and more keys fail than succeed: this is an " +
			"outage. Nothing is parked. The handler receives only probes, after pauses that grow to 30 seconds. A probe " +
			"succeeds: the outage is over, and all that has failed begins again with all attempts.",
	}
	d.box(12, 20, 130, 36, done, "all well")
	d.box(146, 20, 100, 36, failed, "keys fail")
	d.box(250, 20, 248, 36, inHand, "outage: nothing is parked")
	d.box(502, 20, 126, 36, done, "all well")
	d.line(250, 12, 250, 96, true)
	d.line(500, 12, 500, 96, true)
	d.label(226, 112, "three failed alone, few succeed")
	d.label(530, 112, "a probe succeeds")
	for i, x := range []int{262, 296, 336, 394, 468} {
		look, text := failed, "x"
		if i == 4 {
			look, text = done, "ok"
		}
		d.cells(x, 64, look, text)
	}
	d.note(12, 84, "probes of the handler")
	d.note(12, 148, "during the outage")
	d.note(180, 148, "leases are renewed, positions wait, keys are set aside;")
	d.note(180, 166, "Hooks.Outage, the log and changefeed leases say since when")
	d.note(12, 198, "after the outage")
	d.note(180, 198, "failed changes begin again with all their attempts;")
	d.note(180, 216, "what was parked just before returns to the handler")
	return d
}

func drawLag() *diagram {
	d := &diagram{
		name: "lag", height: 268, title: "Lag and watermark",
		desc: "The lag of a lease is the number of changes after its position and the age of the oldest. The watermark " +
			"of a unit is the time before which every change is handled in all leases: that of the lease that is " +
			"furthest behind.",
	}
	d.note(12, 36, "lease 1")
	x := d.cells(90, 18, done, "", "", "", "", "")
	d.cells(x, 18, pending, "", "", "", "")
	d.brace(x, x+124, 50, "4 changes behind")
	d.note(x+10, 94, "the oldest has waited for 12 s")
	d.note(12, 156, "lease 2")
	x = d.cells(90, 138, done, "", "", "", "", "", "", "", "")
	d.cells(x, 138, pending, "")
	d.brace(x, x+28, 170, "1 behind, for 2 s")
	d.line(248, 8, 248, 220, true)
	d.label(248, 236, "watermark: now − 12 s")
	d.note(430, 36, "the unit: 5 changes behind,")
	d.note(430, 54, "the oldest for 12 s")
	d.arrow(90, 254, 580, 254)
	d.note(590, 258, "time")
	return d
}
