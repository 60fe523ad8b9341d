package place

import (
	"context"

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
	found, err := account.IDs(ctx, databases, "dbs")
	if err != nil {
		return nil, err
	}
	for _, database := range found {
		ids, err := account.IDs(ctx, containers, "dbs", database, "colls")
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			names = append(names, database+"/"+id)
		}
	}
	return names, nil
}

// Store returns the address of a store in a directory, or of an account at a URL, without a container.
func Store(dir, endpoint string) Address {
	return Address{Field: "ADDRESS", Dir: dir, endpoint: endpoint}
}
