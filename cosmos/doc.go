// Package cosmos connects changefeed to Azure Cosmos DB: the monitored container, the leases and the writes of a
// processor, over HTTPS and the service's REST protocol.
//
// A [Client] speaks to one account. Its [Container] is a feed.Source and a feed.Committer; [Leases] keep the records of
// a deployment unit in another container, as documents that the .NET processor also reads and writes:
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
//	if err := leases.SelfTest(ctx, orders, feed.LatestVersion); err != nil {
//		return err
//	}
//	p, err := changefeed.New(orders, leases, handler, changefeed.Options{Instance: "worker-1"})
//
// If your credential is a key, [Client.CreateLeaseContainer] makes the lease container, and
// [Client.CreateLetterContainer] makes a container for dead letters.
//
// Your credential is an account key ([Key]) or an identity of Microsoft Entra ID ([Token]); [OpenString] takes a
// connection string. The same code speaks to changefeed's own server. With that server the processor does not poll a
// container, because the server holds a request until there are changes ([Container.Wait]).
//
// # Requests
//
// Every request has a timeout and is repeated at most four times; retry.go has the table. If the reply of a write is
// lost, the client never repeats the write, because the write may have arrived, and a second try would then fail or,
// worse, succeed twice. You must find out whether the write has arrived, as the processor does. If the service asks for
// a long pause, the client returns an error instead of waiting, because the processor has other work meanwhile. An
// [Error] contains the service's own words, and with errors.Is you find the errors of package feed in it.
//
// Reads go to your preferred regions and fail over to the next region; writes go to the write region. The client reads
// the account at the start, every five minutes while you make requests, and after a region has failed. No goroutine
// runs between calls.
//
// # Caveats
//
// A page from Azure is eventually consistent, unless the account is strongly consistent. If the account has several
// write regions, its feed accepts no start time. All versions and deletes needs the container's changeFeedPolicy. Azure
// has no exact count of pending changes, so the estimator reports distances in LSNs.
package cosmos
