package peer

import "encoding/json"

// The sections of a message.
const (
	sectionHeader                = 0x70
	sectionDeliveryAnnotations   = 0x71
	sectionMessageAnnotations    = 0x72
	sectionProperties            = 0x73
	sectionApplicationProperties = 0x74
	sectionData                  = 0x75
	sectionValue                 = 0x77
)

// batchFormat is the message format of several messages in one transfer, each in a data section.
const batchFormat = 0x80013700

// Message is an accepted message of a queue.
type Message struct {
	ID           string
	SessionID    string
	PartitionKey string
	Subject      string
	ContentType  string
	Properties   map[string]any // of the application
	Data         json.RawMessage

	isKeyed     bool // the message has a PartitionKey
	isInSession bool
	annotations dict
	bare        []byte // the sender's sections: properties, application properties, body
}

// section is a part of a message with the bytes.
type section struct {
	number uint64
	value  any
	raw    []byte
}

func sections(b []byte) (all []section, err error) {
	d := decoder{b: b}
	for len(d.b) > 0 {
		before := d.b
		v, ok := d.readValue(0).(described)
		if d.err != nil || !ok {
			return nil, errMalformed
		}
		number, _ := v.descriptor.(uint64)
		all = append(all, section{number, v.value, before[:len(before)-len(d.b)]})
	}
	return all, nil
}

// parseMessage reads a message that is not a batch.
func parseMessage(b []byte) (*Message, error) {
	all, err := sections(b)
	m := &Message{Properties: map[string]any{}}
	for _, s := range all {
		switch s.number {
		case sectionMessageAnnotations:
			m.annotations, _ = s.value.(dict)
			key, ok := m.annotations.valueOf("x-opt-partition-key")
			m.PartitionKey, m.isKeyed = list{key}.textAt(0), ok
		case sectionProperties:
			p, _ := s.value.(list)
			m.ID, m.Subject, m.ContentType = p.textAt(0), p.textAt(3), p.textAt(6)
			m.SessionID = p.textAt(10)
			m.isInSession = p.fieldAt(10) != nil
		case sectionApplicationProperties:
			p, _ := s.value.(dict)
			for i := 0; i+1 < len(p); i += 2 {
				m.Properties[list{p[i]}.textAt(0)] = p[i+1]
			}
		case sectionData:
			data, _ := s.value.([]byte)
			m.Data = append(m.Data, data...)
		}
		if s.number != sectionHeader && s.number != sectionDeliveryAnnotations &&
			s.number != sectionMessageAnnotations {
			m.bare = append(m.bare, s.raw...)
		}
	}
	return m, err
}

// parseTransfer reads the messages of a transfer.
func parseTransfer(format uint32, b []byte) (msgs []*Message, err error) {
	if format != batchFormat {
		m, err := parseMessage(b)
		return []*Message{m}, err
	}
	all, err := sections(b)
	for _, s := range all {
		if data, ok := s.value.([]byte); ok && s.number == sectionData {
			m, err := parseMessage(data)
			if err != nil {
				return nil, err
			}
			msgs = append(msgs, m)
		}
	}
	return msgs, err
}

func appendSection(b []byte, number uint64, v any) []byte {
	return appendValue(b, described{number, v})
}
