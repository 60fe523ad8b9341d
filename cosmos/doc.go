// Package cosmos connects changefeed to Azure Cosmos DB: the monitored container, the
// leases and the writes of a processor, over HTTPS and the service's REST protocol.
//
// A [Client] speaks to one account. A [Container] of it is a changefeed.Source and a
// changefeed.Committer; [Leases] keep the records of a deployment unit in another
// container, as documents that the .NET processor reads and writes too:
//
//	client, err := cosmos.Open(ctx, "https://contoso.documents.azure.com", cosmos.Token(credential), cosmos.Options{})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	orders, err := client.Container(ctx, "shop", "orders")
//	…
//	container, err := client.Container(ctx, "shop", "leases")
//	…
//	leases, err := cosmos.OpenLeases(ctx, container, "billing", orders, cosmos.LeaseOptions{})
//	…
//	if err := leases.SelfTest(ctx, orders, changefeed.LatestVersion); err != nil {
//		return err
//	}
//	p, err := changefeed.New(orders.Source(), leases, handler, changefeed.Options{Instance: "worker-1"})
//
// [Client.CreateLeaseContainer] makes the container of the leases where a key may.
//
// The credential is an account key ([Key]) or an identity of Microsoft Entra ID
// ([Token]); [OpenString] takes a connection string. The same code speaks to changefeed's
// own server, and there [Container.Source] is pushed instead of polling.
//
// # Requests
//
// Every request has a timeout and is repeated at most four times; retry.go has the table
// of when. A write whose reply is lost is never repeated: whether it arrived is for its
// caller to find out, and the processor does. A long pause that the service asks for is
// returned, not waited for. An [Error] has what the service said, and errors.Is finds
// the sentinels of package changefeed in it.
//
// Reads go to the preferred regions and fail over to the next; writes go to the write
// region. The account is read at the start, every five minutes when something is asked,
// and after a region has failed. No goroutine runs between calls.
//
// # Caveats
//
// A page from Azure is read as eventually consistent, or as strong where the account is.
// The feed of an account with several write regions takes no start time. All versions
// and deletes needs the container's changeFeedPolicy. There is no exact count of what is
// pending, so the estimator tells distances in LSNs.
package cosmos
