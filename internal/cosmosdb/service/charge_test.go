package service

import "testing"

func TestCharges(t *testing.T) {
	for _, test := range []struct {
		name      string
		got, want float64
	}{
		{"a read that finds nothing", ReadCharge(0), 1},
		{"a read of one byte", ReadCharge(1), 1},
		{"a read of 1 KB", ReadCharge(1024), 1},
		{"a read above 1 KB", ReadCharge(1025), 2},
		{"a read of 100 KB", ReadCharge(100 << 10), 100},
		{"a create of nothing", WriteCharge(0), 5.5},
		{"an upsert of 1 KB", WriteCharge(1024), 5.5},
		{"a replace of 3 KB", WriteCharge(3 << 10), 16.5},
		{"a delete of 3 KB", WriteCharge(3 << 10), 16.5},
		{"a patch that leaves 1 KB", PatchCharge(1024), 6.5},
		{"a count of nothing", CountCharge(0), 1},
		{"a count of 5,000", CountCharge(5000), 5},
		{"a page that reads nothing", ScanCharge(0, 0), 1},
		{"a page of 10 items and 1 KB", ScanCharge(10, 1<<10), 1},
		{"a page of 100 items and 100 KB", ScanCharge(100, 100<<10), 55},
	} {
		if test.got != test.want {
			t.Errorf("%s costs %v RU, want %v", test.name, test.got, test.want)
		}
	}
}
