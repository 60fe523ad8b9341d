package main

// diagrams returns all pictures, in the order of the page.
func diagrams() []*diagram {
	return []*diagram{
		drawContainer(), drawLease(), drawUnits(), drawCheckpoint(), drawHandOver(), drawSplit(), drawMerge(),
		drawFailure(), drawHeldKey(), drawSetAside(), drawOutage(), drawLag(),
	}
}

func drawContainer() *diagram {
	d := &diagram{
		name: "container", height: 250, title: "A monitored container and its feed ranges",
		desc: "Your service writes items into a container. The hash of an item's partition key selects one of three " +
			"ranges. Each range has its changes in the order of their commits, so all changes of a key are in one range.",
	}
	d.box(12, 95, 100, 50, own, "service")
	d.arrow(112, 120, 167, 120)
	d.label(140, 110, "writes")
	d.frame(170, 12, 458, 206, "container orders, partition key /city")
	for i, row := range []struct {
		name string
		keys []string
	}{
		{"range 1", []string{"Oslo", "Oslo", "Rome", "Oslo", "Rome"}},
		{"range 2", []string{"Lima", "Bern", "Lima"}},
		{"range 3", []string{"Kyiv", "Kyiv", "Cork", "Kyiv"}},
	} {
		y := 46 + i*56
		d.note(184, y+19, row.name)
		x := 250
		for _, key := range row.keys {
			d.box(x, y, 52, cellHeight, pending)
			d.label(x+26, y+19, key)
			x += 58
		}
		d.arrow(x, y+14, x+34, y+14)
		d.label(x+18, y+40, "newer")
	}
	d.note(170, 238, "Each range has its changes in the order of their commits.")
	return d
}

func drawLease() *diagram {
	d := &diagram{
		name: "lease", height: 262, title: "A lease, its position, and the changes of its range",
		desc: "The lease of a range names its owner and a continuation token, which is the position. Changes before the " +
			"position are done. The next three are in the handler. The others are pending.",
	}
	d.note(20, 34, "range 1")
	x := d.cells(90, 16, done, "41", "42", "43", "44", "45")
	position := x - 2
	x = d.cells(x, 16, inHand, "46", "47", "48")
	d.cells(x, 16, pending, "49", "50", "51", "52")
	d.brace(90, position-4, 48, "done")
	d.brace(position+2, x-4, 48, "in the handler")
	d.brace(x, x+124, 48, "pending")
	d.line(position, 6, position, 100, true)
	d.arrow(position, 132, position, 102)
	d.note(position+8, 120, "position")
	d.frame(120, 132, 400, 116, "lease of range 1: a document")
	d.note(136, 176, "owner: instance a")
	d.note(136, 196, "continuation token: \"45\"  (the position)")
	d.note(136, 216, "timestamp: the last renewal")
	d.note(136, 236, "properties: attempts, held keys, epoch, and more")
	return d
}

func drawUnits() *diagram {
	d := &diagram{
		name: "unit", height: 300, title: "Two units on one container",
		desc: "Unit mailer has two instances, which share four leases: two each. Unit search has one instance with all " +
			"four leases. Each unit receives every change.",
	}
	d.frame(12, 60, 130, 180, "container")
	for i, name := range []string{"range 1", "range 2", "range 3", "range 4"} {
		d.box(28, 92+i*36, 98, 28, pending)
		d.label(77, 111+i*36, name)
	}
	d.arrow(142, 110, 206, 80)
	d.arrow(142, 190, 206, 222)
	d.frame(210, 12, 418, 136, "unit mailer")
	d.frame(210, 160, 418, 128, "unit search")
	for i, name := range []string{"lease 1", "lease 2", "lease 3", "lease 4"} {
		d.box(224+i*74, 46, 68, 28, done)
		d.label(258+i*74, 65, name)
		d.box(224+i*74, 194, 68, 28, done)
		d.label(258+i*74, 213, name)
	}
	d.box(224, 104, 142, 34, own, "instance a")
	d.box(372, 104, 142, 34, own, "instance b")
	d.box(224, 246, 290, 34, own, "instance c")
	for i := range 4 {
		x := 258 + i*74
		d.arrow(x, 74, x, 102)
		d.arrow(x, 222, x, 244)
	}
	d.note(526, 126, "2 leases each")
	d.note(526, 268, "all leases")
	return d
}

func drawCheckpoint() *diagram {
	d := &diagram{
		name: "checkpoint", height: 236, title: "A checkpoint, and what a crash repeats",
		desc: "The processor reads a page, calls the handler, and writes the position into the lease when the handler " +
			"has returned. If the process ends before that write, the next owner begins at the stored position, so the " +
			"handler receives the batch again.",
	}
	steps := []struct {
		look  string
		lines []string
	}{
		{plain, []string{"read", "a page"}},
		{own, []string{"your", "handler"}},
		{done, []string{"store the", "position"}},
	}
	for i, s := range steps {
		d.box(30+i*210, 20, 120, 56, s.look, s.lines...)
		if i > 0 {
			d.arrow(30+(i-1)*210+120, 48, 30+i*210-3, 48)
		}
	}
	d.label(195, 40, "batch")
	d.label(405, 40, "nil")
	d.line(405, 56, 405, 112, true)
	d.box(310, 112, 190, 34, failed, "the process ends here")
	d.arrow(405, 146, 405, 174)
	d.box(110, 176, 420, 44, plain, "the next owner begins at the stored position:",
		"the handler receives the batch again")
	d.line(510, 76, 510, 94, false)
	d.line(510, 94, 90, 94, false)
	d.arrow(90, 94, 90, 79)
	d.note(100, 110, "the next page")
	return d
}

func drawHandOver() *diagram {
	d := &diagram{
		name: "hand-over", height: 322, title: "A planned hand-over, and a take-over after a crash",
		desc: "Planned: instance b joins. Instance a finishes its batch, stores the position and writes b as the owner. " +
			"b continues at once, and nothing is repeated. Crash: instance a ends. Its lease stays as it is until " +
			"it expires. Then b takes the lease and receives the changes after the stored position again.",
	}
	d.note(12, 24, "planned: b joins the unit")
	d.note(12, 60, "instance a")
	d.note(12, 104, "instance b")
	d.box(100, 42, 150, 28, inHand)
	d.label(175, 61, "handles a batch")
	d.box(254, 42, 130, 28, done)
	d.label(319, 61, "stores, gives to b")
	d.arrow(384, 70, 408, 84)
	d.box(400, 86, 200, 28, inHand)
	d.label(500, 105, "handles the next batch")
	d.line(130, 76, 130, 128, true)
	d.label(160, 142, "b shows itself")
	d.note(290, 142, "no change is repeated, no wait for the expiry")
	d.line(12, 160, 628, 160, false)
	d.note(12, 186, "crash: a ends")
	d.note(12, 222, "instance a")
	d.note(12, 266, "instance b")
	d.box(100, 204, 90, 28, inHand)
	d.label(145, 223, "a batch")
	d.box(194, 204, 60, 28, failed)
	d.label(224, 223, "ends")
	d.line(254, 218, 440, 218, true)
	d.label(347, 210, "the lease expires: 60 s")
	d.arrow(440, 218, 452, 244)
	d.box(448, 248, 170, 28, inHand)
	d.label(533, 267, "the same batch again")
	d.note(230, 304, "changes after the stored position are repeated")
	return d
}

func drawSplit() *diagram {
	d := &diagram{
		name: "split", height: 292, title: "A partition is split",
		desc: "The lease of the old range has a position. First the lease is marked as splitting, then a lease for each " +
			"half is created with this position, and at last the old lease is deleted.",
	}
	d.note(12, 34, "before")
	x := d.cells(90, 16, done, "1", "2", "3")
	d.cells(x, 16, pending, "4", "5", "6", "7")
	d.line(x-2, 8, x-2, 56, true)
	d.note(x+4, 62, "position: 3")
	d.box(400, 12, 220, 36, plain, "lease of range A–C")
	d.arrow(510, 48, 510, 74)
	d.box(400, 76, 220, 36, inHand, "A–C: splitting")
	d.arrow(450, 112, 380, 146)
	d.arrow(570, 112, 560, 146)
	d.note(12, 168, "after")
	d.note(60, 168, "A–B")
	x = d.cells(100, 150, pending, "4", "6")
	d.note(x+4, 168, "position: 3")
	d.note(60, 216, "B–C")
	x = d.cells(100, 198, pending, "5", "7")
	d.note(x+4, 216, "position: 3")
	d.box(290, 148, 160, 36, done, "lease of A–B")
	d.box(470, 148, 158, 36, done, "lease of B–C")
	d.arrow(510, 184, 510, 214)
	d.box(400, 216, 220, 36, failed, "A–C: deleted last")
	d.note(12, 276, "A crash between any two steps loses nothing: another instance continues.")
	return d
}

func drawMerge() *diagram {
	d := &diagram{
		name: "merge", height: 236, title: "Two partitions are merged, and their leases are joined",
		desc: "After a merge both leases stay, and each reads its part of the new partition. When the unit has had too " +
			"many leases for five expirations, the neighbours are joined into one lease.",
	}
	d.note(12, 36, "two partitions")
	d.box(150, 16, 220, 32, pending, "A–B")
	d.box(380, 16, 220, 32, pending, "B–C")
	d.arrow(375, 52, 375, 74)
	d.note(12, 98, "one partition")
	d.box(150, 78, 450, 32, pending, "A–C")
	d.note(12, 146, "two leases")
	d.box(150, 126, 220, 32, done, "lease of A–B")
	d.box(380, 126, 220, 32, done, "lease of B–C")
	d.arrow(375, 162, 375, 182)
	d.note(392, 178, "after 5 expirations (5 minutes)")
	d.note(12, 206, "one lease")
	d.box(150, 186, 450, 32, done, "lease of A–C")
	return d
}
