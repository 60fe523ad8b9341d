package cosmosrest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Statistics of a container, if the client asks for them: the documents of each partition, their size, and the largest
// partition keys. The service samples; here all documents are read, so the figures are exact.

// rangeStatistics are those of a partition key range, in the format of the service.
type rangeStatistics struct {
	ID        string          `json:"id"`
	Size      int64           `json:"sizeInKB"`
	Documents int64           `json:"documentCount"`
	Keys      int64           `json:"sampledDistinctPartitionKeyCount"`
	Largest   []keyStatistics `json:"partitionKeys"`

	bytes int64
}

// keyStatistics are those of a partition key.
type keyStatistics struct {
	Key  json.RawMessage `json:"partitionKey"`
	Size int64           `json:"sizeInKB"`

	bytes int64
}

// largestKeys is how many partition keys of a range are listed, as in the service.
const largestKeys = 5

// kilobytes rounds up, as the service does: a single document has a KB.
func kilobytes(bytes int64) int64 { return (bytes + 1023) / 1024 }

// readStatistics reads the statistics of all ranges of a container. They contain values of documents, so the sender
// needs the right to read all items.
func readStatistics(c *call, cont *docstore.Container) ([]rangeStatistics, error) {
	on := c.targetResource()
	on.Key = "" // the statistics are of all keys, even if the request names one
	if !c.who.May(auth.ReadChangeFeed, func() auth.Resource { return on }) {
		return nil, c.who.Refusal(auth.ReadChangeFeed, on, &c.in)
	}
	parts, err := cont.Partitions(c.ctx)
	if err != nil {
		return nil, err
	}
	all := make([]rangeStatistics, len(parts))
	for i, part := range parts {
		all[i].ID = part.ID
		if err := all[i].count(c, cont, part.Range); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// count reads the documents of a range. The documents of a key follow each other.
func (s *rangeStatistics) count(c *call, cont *docstore.Container, rng feed.Range) error {
	var key feed.PartitionKey
	var bytes int64
	end := func() {
		if bytes == 0 {
			return
		}
		s.Keys++
		s.Largest = append(s.Largest, keyStatistics{json.RawMessage(key), kilobytes(bytes), bytes})
		slices.SortStableFunc(s.Largest, func(a, b keyStatistics) int { return cmp.Compare(b.bytes, a.bytes) })
		s.Largest = s.Largest[:min(len(s.Largest), largestKeys)]
		s.bytes, bytes = s.bytes+bytes, 0
	}
	s.Largest = []keyStatistics{}
	for item, err := range cont.Items(c.ctx, rng, "") {
		if err != nil {
			return err
		}
		if err := c.work.Work(meter.DocWork + len(item.Body)); err != nil {
			return err
		}
		if item.Key != key {
			end()
			key = item.Key
		}
		s.Documents++
		bytes += int64(len(item.Body))
	}
	end()
	s.Size = kilobytes(s.bytes)
	return nil
}

// setUsage sets what a container may have, and what it has. Sizes are known only if the documents were read.
func setUsage(c *call, cont *docstore.Container, all []rangeStatistics) {
	usage := fmt.Sprintf("functions=0;storedProcedures=0;triggers=0;documentsCount=%d;", cont.Count())
	if all != nil {
		var bytes int64
		for i := range all {
			bytes += all[i].bytes
		}
		size := kilobytes(bytes)
		usage = fmt.Sprintf("functions=0;storedProcedures=0;triggers=0;documentSize=%d;documentsSize=%d;"+
			"documentsCount=%d;collectionSize=%d;", (size+512)/1024, size, cont.Count(), size)
	}
	c.out.Set(wire.AnswerResourceQuota, containerQuota)
	c.out.Set(wire.AnswerResourceUsage, usage)
	c.out.Set(wire.AnswerIndexProgress, "100") // no index needs to be rebuilt
}
