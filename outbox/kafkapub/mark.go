package kafkapub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mark is a record of the topic of marks: the published position of a range, or the presence of an owner.
type mark struct {
	Range string   `json:"range"`
	Epoch int64    `json:"epoch"`           // of the owner that wrote the mark
	LSN   int64    `json:"lsn"`             // every change of the range before this LSN is done,
	Items []string `json:"items,omitempty"` // and so are these versions with this LSN
	// true for the presence of an owner: then the mark says nothing about changes
	Owner bool `json:"owner,omitempty"`
}

// passChange moves the mark to a change, unless the change is done. Changes of a transaction have the same LSN: id and
// ETag distinguish them.
func (m *mark) passChange(c *feed.Change) bool {
	version := c.ID + c.ETag
	if c.LSN < m.LSN || c.LSN == m.LSN && slices.Contains(m.Items, version) {
		return false
	}
	if c.LSN > m.LSN {
		m.LSN, m.Items = c.LSN, nil
	}
	m.Items = append(m.Items, version)
	return true
}

// joinWith combines the marks of two wholes to the mark of a part.
func (m *mark) joinWith(other mark) {
	switch {
	case other.LSN > m.LSN:
		m.LSN, m.Items = other.LSN, slices.Clone(other.Items)
	case other.LSN == m.LSN:
		m.Items = append(m.Items, other.Items...)
	}
}

// markRecord returns a mark as a record of the topic. The presence of an owner has a separate key: if a late owner
// announces itself, this record must not replace the published position.
func (h *ExactlyOnce) markRecord(m mark) *kgo.Record {
	key := h.transactionalID(m.Range)
	if m.Owner {
		key += "/owner"
	}
	value, _ := json.Marshal(m) // texts and numbers cannot fail
	return &kgo.Record{Topic: h.marks, Key: []byte(key), Value: value}
}

// transactionalID returns the transactional id of a range.
func (h *ExactlyOnce) transactionalID(r string) string { return h.unit + "/" + r }

func (h *ExactlyOnce) producer(id string) (*kgo.Client, error) {
	return kgo.NewClient(append(slices.Clip(h.cluster), kgo.TransactionalID(id))...)
}

// openRange makes this process the owner of a range. From then on no earlier owner, of the range or of a whole that
// contained it, can commit records, and the mark has the position of their commits.
//
// Each owner first writes a presence record and then reads those of the others. So if two owners have overlapping
// ranges, at least one of them sees the other: the owner with the higher epoch fences the other, and the owner with the
// lower epoch gives up.
func (h *ExactlyOnce) openRange(ctx context.Context, o *owner, b *feed.Batch) (err error) {
	if o.client, err = h.producer(h.transactionalID(b.Range.String())); err != nil {
		return err
	}
	o.epoch = b.Epoch
	if err := h.createMarks(ctx, o.client); err != nil {
		return err
	}
	fenced := map[string]bool{}
	for {
		here := h.markRecord(mark{Range: b.Range.String(), Epoch: b.Epoch, Owner: true})
		if err := commit(ctx, o.client, here); err != nil {
			return fmt.Errorf("become the owner: %w", err)
		}
		others, err := h.readMarks(ctx, here.Offset)
		if err != nil {
			return fmt.Errorf("read the marks: %w", err)
		}
		wholes, err := h.judgeMarks(others, b, o)
		if err != nil {
			return err
		}
		wholes = slices.DeleteFunc(wholes, func(whole string) bool { return fenced[whole] })
		if len(wholes) == 0 {
			return nil
		}
		for _, whole := range wholes { // then look again: the owner may have committed records before
			if err := h.fenceRange(ctx, whole); err != nil {
				return fmt.Errorf("end the owner of %s: %w", whole, err)
			}
			fenced[whole] = true
		}
	}
}

// judgeMarks reads from the marks of a unit which changes of a range are done, and which wholes contain the range.
func (h *ExactlyOnce) judgeMarks(marks map[string]mark, b *feed.Batch, o *owner) (wholes []string, err error) {
	o.mark = mark{}
	for _, m := range marks {
		r, err := feed.ParseRange(m.Range)
		if err != nil {
			return nil, fmt.Errorf("mark: %w", err)
		}
		switch {
		case !r.Overlaps(b.Range):
			continue
		case m.Epoch > b.Epoch, !r.Contains(b.Range):
			return nil, fmt.Errorf("epoch %d, after %d of range %v: %w", b.Epoch, m.Epoch, r, errLater)
		}
		if !m.Owner {
			o.mark.joinWith(m)
		}
		if r != b.Range && !slices.Contains(wholes, m.Range) {
			wholes = append(wholes, m.Range)
		}
	}
	return wholes, nil
}

// fenceRange makes Kafka refuse further records of the owner of a range, and end the owner's transaction.
func (h *ExactlyOnce) fenceRange(ctx context.Context, r string) error {
	client, err := h.producer(h.transactionalID(r))
	if err != nil {
		return err
	}
	defer client.Close()
	_, _, err = client.ProducerID(ctx)
	return err
}

// readMarks returns the marks of the unit, by key, up to the record at an offset. read waits for transactions that
// began before that record.
func (h *ExactlyOnce) readMarks(ctx context.Context, until int64) (map[string]mark, error) {
	client, err := kgo.NewClient(append(slices.Clip(h.cluster), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{h.marks: {0: kgo.NewOffset().AtStart()}}))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	marks := map[string]mark{}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for r := range fetches.RecordsAll() {
			if len(r.Key) > len(h.unit) && string(r.Key[:len(h.unit)+1]) == h.unit+"/" {
				var m mark
				if err := json.Unmarshal(r.Value, &m); err != nil {
					return nil, fmt.Errorf("mark at offset %d: %w", r.Offset, err)
				}
				marks[string(r.Key)] = m
			}
			if r.Offset >= until {
				return marks, nil
			}
		}
	}
}

// createMarks creates the topic of the marks, if the topic is missing and the cluster allows the creation.
func (h *ExactlyOnce) createMarks(ctx context.Context, client *kgo.Client) error {
	compact := "compact"
	request := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = h.marks, 1, -1
	policy := kmsg.NewCreateTopicsRequestTopicConfig()
	policy.Name, policy.Value = "cleanup.policy", &compact
	topic.Configs = append(topic.Configs, policy)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", h.marks, err)
	}
	for _, t := range response.Topics {
		err := kerr.ErrorForCode(t.ErrorCode)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) && !errors.Is(err, kerr.TopicAuthorizationFailed) &&
			!errors.Is(err, kerr.ClusterAuthorizationFailed) {
			return fmt.Errorf("create topic %s: %w", h.marks, err)
		}
	}
	return h.checkMarks(ctx, client)
}

// checkMarks refuses a topic whose marks could be read in another order than they were written.
func (h *ExactlyOnce) checkMarks(ctx context.Context, client *kgo.Client) error {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &h.marks
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("read about topic %s: %w", h.marks, err)
	}
	for _, t := range response.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("read about topic %s: %w", h.marks, err)
		}
		if n := len(t.Partitions); n != 1 {
			return fmt.Errorf("topic %s has %d partitions: that of the marks has to have one", h.marks, n)
		}
	}
	return nil
}
