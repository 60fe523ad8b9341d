package cosmosrest

import (
	"bytes"
	"encoding/json"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// Computed properties of containers: the server keeps them with the other policies, and queries may name them.

// maxComputed is the largest number of computed properties of a container, as in the service.
const maxComputed = 20

// computedPolicy is a computed property as clients send it.
type computedPolicy struct {
	Name  string `json:"name"`
	Query string `json:"query"`
}

// invalidInput begins the refusal of a computed property, in the service's words.
const invalidInput = "One of the specified inputs is invalid: "

// computed parses the computed properties, and refuses those that the service would refuse.
func (p properties) computed() ([]*sql.Computed, error) {
	var policies []computedPolicy
	raw, ok := p["computedProperties"]
	if !ok {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &policies); err != nil {
		return nil, wire.BadRequest(invalidInput+"computedProperties is %.100s: want a list such as "+
			`[{"name":"low","query":"SELECT VALUE LOWER(c.x) FROM c"}]`, raw)
	}
	if len(policies) > maxComputed {
		return nil, wire.BadRequest(invalidInput+"computedProperties has %d properties: want at most %d",
			len(policies), maxComputed)
	}
	var all []*sql.Computed
	seen := map[string]bool{"": true, "id": true}
	for _, name := range systemMembers {
		seen[name] = true
	}
	for _, policy := range policies {
		if seen[policy.Name] {
			return all, wire.BadRequest(invalidInput+"computedProperties has the name %q: want different names that "+
				"are not empty, and no system properties", policy.Name)
		}
		seen[policy.Name] = true
		c, err := sql.ParseComputed(policy.Name, policy.Query)
		if err != nil {
			return all, wire.BadRequest(invalidInput+"computedProperties has the query %.100q: %v", policy.Query, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// computedOf returns the computed properties of a container. Most containers have none, so their policies are not read.
// A property that an older build of the server took is left out if this build would refuse it.
func computedOf(cont *docstore.Container) []*sql.Computed {
	raw := cont.Spec().Meta
	if !bytes.Contains(raw, []byte(`"computedProperties"`)) {
		return nil
	}
	all, _ := readMeta(raw).Body.computed()
	return all
}
