package auth

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Roles define which actions a principal may do, and where. The names of actions and of the two built-in roles are
// the service's, so you can copy a role definition from Azure.

// The actions that roles grant, by the service's names. Only keys grant [Manage] and [ReadManaged].
const (
	ReadMetadata   = ofAccount + "readMetadata"
	Query          = ofContainer + "executeQuery"
	ReadChangeFeed = ofContainer + "readChangeFeed"
	Create         = ofContainer + "items/create"
	ReadItem       = ofContainer + "items/read"
	Replace        = ofContainer + "items/replace"
	Upsert         = ofContainer + "items/upsert"
	Delete         = ofContainer + "items/delete"
	Manage         = "manage"      // databases, containers, offers, splits
	ReadManaged    = "readManaged" // offers and users: read-only keys may, roles and resource tokens may not
)

const (
	ofAccount   = "Microsoft.DocumentDB/databaseAccounts/"
	ofContainer = ofAccount + "sqlDatabases/containers/"
)

// The names of sets of actions. A grant may also name single actions.
const (
	readerRole      = "Cosmos DB Built-in Data Reader"
	contributorRole = "Cosmos DB Built-in Data Contributor"
	everyItemAction = ofContainer + "items/*"
	everyQuery      = ofContainer + "*" // actions on a container as a whole
)

// The actions of the service's two built-in roles.
var (
	readerActions = []string{ReadMetadata, Query, ReadChangeFeed, ReadItem}
	itemActions   = []string{Create, ReadItem, Replace, Upsert, Delete}
)

// idleActions are data actions of the service on what this server does not have: conflicts and stored procedures.
// A definition of a role may name them, and they grant nothing.
var idleActions = []string{ofContainer + "manageConflicts", ofContainer + "executeStoredProcedure"}

// Grant contains the rights of a principal in a container, in a database, or everywhere.
type Grant struct {
	Database, Container string // ids; empty or "*" means all
	Actions             []string
}

// grant is a [Grant] whose sets of actions are replaced by single actions.
type grant struct {
	database, container string // empty means all
	actions             []string
}

// CheckRoles returns an error if a grant is invalid.
func CheckRoles(roles map[string][]Grant) error {
	_, err := compileRoles(roles)
	return err
}

// compileRoles checks the roles of all principals, and lists the single actions that they grant.
func compileRoles(roles map[string][]Grant) (map[string][]grant, error) {
	all := map[string][]grant{}
	for _, who := range slices.Sorted(maps.Keys(roles)) {
		if who == "" {
			return nil, errors.New("a principal of the roles is empty: want its object id")
		}
		for i, g := range roles[who] {
			compiled, err := g.compile()
			if err != nil {
				return nil, fmt.Errorf("grant %d of principal %q: %w", i+1, who, err)
			}
			all[who] = append(all[who], compiled)
		}
	}
	return all, nil
}

// compile lists the single actions of a grant. compile refuses an invalid grant.
func (g Grant) compile() (grant, error) {
	c := grant{database: unlessEvery(g.Database), container: unlessEvery(g.Container)}
	if c.database == "" && c.container != "" {
		return c, fmt.Errorf("container is %q and database %q: want the id of the container's database", g.Container,
			g.Database)
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

// unlessEvery returns an id, or "" if the id means all.
func unlessEvery(id string) string {
	if id == "*" {
		return ""
	}
	return id
}

// meaning returns the actions that a name grants. For an unknown name the result is all names, for the error.
func meaning(name string) ([]string, bool) {
	for _, set := range []struct {
		name    string
		actions []string
	}{
		{readerRole, readerActions},
		{contributorRole, slices.Concat(readerActions, itemActions)},
		{everyQuery, []string{Query, ReadChangeFeed}},
		{everyItemAction, itemActions},
	} {
		if strings.EqualFold(name, set.name) {
			return set.actions, true
		}
	}
	single := slices.Concat([]string{ReadMetadata, Query, ReadChangeFeed}, itemActions)
	for _, action := range single {
		if strings.EqualFold(name, action) {
			return []string{action}, true
		}
	}
	if slices.ContainsFunc(idleActions, func(action string) bool { return strings.EqualFold(name, action) }) {
		return nil, true
	}
	return slices.Concat(single, idleActions, []string{everyQuery, everyItemAction, readerRole, contributorRole}), false
}
