package servermetrics

import (
	"github.com/millrace/changefeed/docstore"
)

// storeState is what the gauges of a store are read from.
type storeState struct {
	docstore.Health
	documents int64
}

// unknown is a value that is not observed.
const unknown = -1

// storeGauges are the gauges of a store.
var storeGauges = []struct {
	name, unit, text string
	value            func(*storeState) int64
}{
	{
		"changefeed.store.waiting", "{write}", "Writes without an answer.",
		func(s *storeState) int64 { return s.Waiting },
	},
	{
		"changefeed.store.failed", "1", "1 if the store has failed, otherwise 0.",
		func(s *storeState) int64 { return oneIf(s.Err != nil) },
	},
	{
		"changefeed.store.full", "1", "1 if the store refuses writes for lack of room, otherwise 0.",
		func(s *storeState) int64 { return oneIf(s.Full != nil) },
	},
	{
		"changefeed.store.disk.free", "By", "Free space of the volume.",
		func(s *storeState) int64 { return ifKnown(s.Disk.Size > 0, s.Disk.Free) },
	},
	{
		"changefeed.store.disk.size", "By", "Size of the volume.",
		func(s *storeState) int64 { return ifKnown(s.Disk.Size > 0, s.Disk.Size) },
	},
	{
		"changefeed.store.size", "By", "Size of the store's files.",
		func(s *storeState) int64 { return ifKnown(s.Bytes > 0, s.Bytes) },
	},
	{
		"changefeed.store.documents", "{document}", "Documents of all containers.",
		func(s *storeState) int64 { return s.documents },
	},
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func ifKnown(isKnown bool, value int64) int64 {
	if isKnown {
		return value
	}
	return unknown
}
