package cosmosrest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Actions that roles grant, by the service's names. Only keys may manage.
const (
	ofAccount            = "Microsoft.DocumentDB/databaseAccounts/"
	ofContainer          = ofAccount + "sqlDatabases/containers/"
	actionReadMetadata   = ofAccount + "readMetadata"
	actionQuery          = ofContainer + "executeQuery"
	actionReadChangeFeed = ofContainer + "readChangeFeed"
	actionCreate         = ofContainer + "items/create"
	actionReadItem       = ofContainer + "items/read"
	actionReplace        = ofContainer + "items/replace"
	actionUpsert         = ofContainer + "items/upsert"
	actionDelete         = ofContainer + "items/delete"
	actionManage         = "manage" // databases, containers, offers, splits
)

// Names of sets of actions, besides the actions themselves.
const (
	readerRole      = "Cosmos DB Built-in Data Reader"
	contributorRole = "Cosmos DB Built-in Data Contributor"
	everyItemAction = ofContainer + "items/*"
	everyQuery      = ofContainer + "*" // those of a container as a whole
)

// The actions of the service's two built-in roles.
var (
	readerActions = []string{actionReadMetadata, actionQuery, actionReadChangeFeed, actionReadItem}
	itemActions   = []string{actionCreate, actionReadItem, actionReplace, actionUpsert, actionDelete}
)

// Roles are what Entra principals may do, by their ids: the claim oid of their tokens
// or, without one, appid or sub.
type Roles map[string][]Grant

// Grant is what a principal may do in one container, in one database, or everywhere.
type Grant struct {
	// Database and Container are ids; empty or "*" is every one.
	Database  string `json:"database"`
	Container string `json:"container"`

	// Actions are data actions by the service's names, such as
	// "Microsoft.DocumentDB/databaseAccounts/readMetadata" and
	// "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/items/*", or its
	// roles "Cosmos DB Built-in Data Reader" and "Cosmos DB Built-in Data Contributor".
	Actions []string `json:"actions"`
}

// ParseRoles reads roles from JSON: an object of lists of grants.
func ParseRoles(text []byte) (Roles, error) {
	var roles Roles
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&roles)
	if err == nil && len(roles) == 0 {
		err = errors.New("there are none")
	}
	if err == nil && dec.More() {
		err = errors.New("there is more behind them")
	}
	if err != nil {
		return nil, fmt.Errorf(`read roles: line %d: %w: want {"PRINCIPAL": [{"database": "d", "container": "c", "actions": [...]}]}`, failedLine(text, dec, err), err)
	}
	_, err = roles.compile()
	return roles, err
}

// failedLine is the line where a decoder stopped.
func failedLine(text []byte, dec *json.Decoder, err error) int {
	at := dec.InputOffset()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = e.Offset
	}
	return 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte{'\n'})
}

// grant is a [Grant] with single actions.
type grant struct {
	database, container string // empty is every
	actions             []string
}

// compile checks the roles, and writes out what they grant.
func (r Roles) compile() (map[string][]grant, error) {
	all := map[string][]grant{}
	for _, who := range slices.Sorted(maps.Keys(r)) {
		if who == "" {
			return nil, errors.New("a principal of the roles is empty: want its object id")
		}
		for i, g := range r[who] {
			compiled, err := g.compile()
			if err != nil {
				return nil, fmt.Errorf("grant %d of principal %q: %w", i+1, who, err)
			}
			all[who] = append(all[who], compiled)
		}
	}
	return all, nil
}

func (g Grant) compile() (grant, error) {
	c := grant{database: unlessEvery(g.Database), container: unlessEvery(g.Container)}
	if c.database == "" && c.container != "" {
		return c, fmt.Errorf("container is %q and database %q: want the id of the container's database", g.Container, g.Database)
	}
	if len(g.Actions) == 0 {
		return c, errors.New("actions are empty: want at least one")
	}
	for _, name := range g.Actions {
		actions, ok := meaning(name)
		if !ok {
			return c, fmt.Errorf("action is %q: want one of %s", name, strings.Join(actions, ", "))
		}
		c.actions = append(c.actions, actions...)
	}
	return c, nil
}

func unlessEvery(id string) string {
	if id == "*" {
		return ""
	}
	return id
}

// meaning are the actions that a name grants; for a name that is not known, all names.
func meaning(name string) ([]string, bool) {
	for _, set := range []struct {
		name    string
		actions []string
	}{
		{readerRole, readerActions},
		{contributorRole, slices.Concat(readerActions, itemActions)},
		{everyQuery, []string{actionQuery, actionReadChangeFeed}},
		{everyItemAction, itemActions},
	} {
		if strings.EqualFold(name, set.name) {
			return set.actions, true
		}
	}
	single := slices.Concat([]string{actionReadMetadata, actionQuery, actionReadChangeFeed}, itemActions)
	for _, action := range single {
		if strings.EqualFold(name, action) {
			return []string{action}, true
		}
	}
	return append(single, everyQuery, everyItemAction, readerRole, contributorRole), false
}
