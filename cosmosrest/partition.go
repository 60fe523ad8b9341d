package cosmosrest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Physical partitions; the protocol calls them partition key ranges. Clients list and follow them as in the service.
// In addition, clients can split and merge them, so you can test programs against splits and merges.

// listRanges lists the partitions of a container, in pages. A client that follows the partitions (A-IM) gets all
// partitions that are newer than its ETag, at once. The client adds these to its known partitions and drops those
// that are parents of others; the rest covers the key space again.
func listRanges(c *call) error {
	if err := c.allowAction(auth.ReadMetadata); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	parts, err := cont.Partitions(c.ctx)
	if err != nil {
		return err
	}
	c.out.Set(wire.AnswerETag, rangesTag(cont, parts))
	all := len(parts)
	if c.in.Header(wire.HeaderAIM) == "" {
		return rangesOf(cont, parts, all).listPage(c)
	}
	known := knownRange(cont, c.in.Header(wire.HeaderIfNoneMatch))
	parts = slices.DeleteFunc(parts, func(partition feed.Partition) bool { return rangeNumber(partition) <= known })
	if len(parts) == 0 {
		return c.sendReply(http.StatusNotModified, nil)
	}
	return rangesOf(cont, parts, all).replyAll(c)
}

// rangesTag returns the ETag of a set of partitions. Each split and merge creates a partition with a new highest
// number, so the highest number identifies the set.
func rangesTag(cont *docstore.Container, parts []feed.Partition) string {
	var newest int64
	for _, partition := range parts {
		newest = max(newest, rangeNumber(partition))
	}
	return `"` + cont.RID() + "." + strconv.FormatInt(newest, 10) + `"`
}

// knownRange returns the newest partition that a client with this ETag knows. knownRange returns -1 if there is none,
// or if the ETag belongs to another container.
func knownRange(cont *docstore.Container, etag string) int64 {
	rid, number, _ := strings.Cut(strings.Trim(etag, `"`), ".")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || rid != cont.RID() {
		return -1
	}
	return n
}

// rangeNumber returns a partition's id in the store as a number.
func rangeNumber(partition feed.Partition) int64 {
	n, _ := strconv.ParseInt(partition.ID, 10, 64) // cannot fail: the store's ids are numbers
	return n
}

// rangesOf returns some of a container's partitions as clients see them; all is the number of all partitions.
func rangesOf(cont *docstore.Container, parts []feed.Partition, all int) resources {
	found := resources{member: "PartitionKeyRanges", rid: cont.RID()}
	_, changed := cont.Version()
	for _, partition := range parts {
		rid := rangeRID(cont, partition)
		body := properties{
			"minInclusive": wire.Encode(partition.Range.Min), "maxExclusive": wire.Encode(partition.Range.Max),
			"parents":   wire.Encode(append([]string{}, partition.Parents...)),
			"ridPrefix": wire.Encode(rangeNumber(partition)), "throughputFraction": wire.Encode(1 / float64(all)),
			"status":                  wire.Encode("online"),
			"ownedArchivalPKRangeIds": wire.Encode([]string{}), "lsn": wire.Encode(cont.Newest(partition.Range.Min)),
		}
		body.setIdentity(partition.ID, rid, cont.Self()+"pkranges/"+rid+"/", version{rangeETag(rid), changed.Unix()})
		// A page continues after an id, and the partitions are in the order of their ranges, so the upper bound of a
		// range serves as its id here.
		found.all = append(found.all, resource{partition.Range.Max, wire.Encode(body)})
	}
	return found
}

// rangeETag returns the ETag of a partition, which never changes: a split creates new partitions.
func rangeETag(rid string) string {
	b := sha256.Sum256([]byte(rid))
	return fmt.Sprintf(`"%x-%x-%x-%x-%x"`, b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// rangeRID returns the resource id of a partition: the container's resource id, and 8 bytes, the last of which is the
// type.
func rangeRID(cont *docstore.Container, partition feed.Partition) string {
	const partitionKeyRange = 0x50 << 56
	// cannot fail: the store made the id this way
	own, _ := base64.StdEncoding.DecodeString(strings.ReplaceAll(cont.RID(), "-", "/"))
	// the service's numbers begin at 2
	own = binary.LittleEndian.AppendUint64(own, uint64(rangeNumber(partition)+2)|partitionKeyRange)
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(own), "/", "-")
}

// partitionChange is an administrator's request to split or merge partitions of a container. The service splits and
// merges by itself.
type partitionChange struct {
	Operation string   `json:"operation"` // split or merge
	ID        string   `json:"id"`        // the partition to split
	At        string   `json:"at"`        // effective partition key to split at; empty means the middle
	IDs       []string `json:"ids"`       // the two neighbours to merge
}

// changePartitions splits or merges partitions, and answers with the new partitions.
func changePartitions(c *call) error {
	if err := c.allowAction(auth.Manage); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	body, err := c.in.Body(wire.MaxProperties)
	if err != nil {
		return err
	}
	var asked partitionChange
	if err := json.Unmarshal(body, &asked); err != nil {
		return wire.BadRequest(`body is %.100q: want {"operation":"split","id":"0"}`, body)
	}
	made, err := changePartition(c.ctx, cont, asked)
	if err != nil {
		return err
	}
	// The ETag is that of all ranges, so clients notice that their ranges are out of date. The body contains only the
	// new ranges.
	now, err := cont.Partitions(c.ctx)
	if err != nil {
		return err
	}
	c.out.Charge += service.ManageCharge
	c.out.Set(wire.AnswerETag, rangesTag(cont, now))
	return rangesOf(cont, made, len(now)).replyAll(c)
}

// changePartition splits or merges.
func changePartition(ctx context.Context, cont *docstore.Container, asked partitionChange) ([]feed.Partition, error) {
	switch {
	case asked.Operation == "split" && asked.ID != "" && asked.At == "":
		return cont.Split(ctx, asked.ID)
	case asked.Operation == "split" && asked.ID != "":
		if _, err := hex.DecodeString(asked.At); err != nil {
			return nil, wire.BadRequest("at is %.100q: want an effective partition key in hexadecimal, such as 1F",
				asked.At)
		}
		return cont.SplitAt(ctx, asked.ID, strings.ToUpper(asked.At))
	case asked.Operation == "merge" && len(asked.IDs) == 2:
		one, err := cont.Merge(ctx, asked.IDs[0], asked.IDs[1])
		return []feed.Partition{one}, err
	}
	return nil,
		wire.BadRequest(`operation is %.100q: want {"operation":"split","id":"0"} or {"operation":"merge","ids":["1","2"]}`, asked.Operation)
}
