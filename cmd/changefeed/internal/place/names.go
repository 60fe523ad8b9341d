package place

import (
	"context"
	"net/http"

	"github.com/millrace/changefeed/docstore"
)

// Names returns the names of all containers in the store or the account of an address, as database/container. For a
// store, containers of the default database have no database in their names.
func (o *Opener) Names(ctx context.Context, a Address) (names []string, err error) {
	if a.Dir != "" {
		db, err := o.openStore(a, docstore.Options{MustExist: true})
		if err != nil {
			return nil, err
		}
		for _, c := range db.Containers() {
			names = append(names, c.Name())
		}
		return names, nil
	}
	account, err := o.Account(ctx, a)
	if err != nil {
		return nil, err
	}
	var databases struct{ Databases []struct{ ID string } }
	if err := account.call(ctx, http.MethodGet, nil, "dbs", nil, &databases); err != nil {
		return nil, err
	}
	for _, database := range databases.Databases {
		var containers struct{ DocumentCollections []struct{ ID string } }
		err := account.call(ctx, http.MethodGet, []string{"dbs", database.ID}, "colls", nil, &containers)
		if err != nil {
			return nil, err
		}
		for _, c := range containers.DocumentCollections {
			names = append(names, database.ID+"/"+c.ID)
		}
	}
	return names, nil
}

// Store returns the address of a store in a directory, or of an account at a URL, without a container.
func Store(dir, endpoint string) Address {
	return Address{Field: "ADDRESS", Dir: dir, endpoint: endpoint}
}
