// Package cosmos connects changefeed to Azure Cosmos DB: the monitored container, the
// leases and the writes of a processor, over HTTPS and the service's REST protocol.
//
// A [Client] speaks to one account. Its [Container] is a feed.Source and a
// feed.Committer; [Leases] keep the records of a deployment unit in another
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
//	if err := leases.SelfTest(ctx, orders, feed.LatestVersion); err != nil {
//		return err
//	}
//	p, err := changefeed.New(orders, leases, handler, changefeed.Options{Instance: "worker-1"})
//
// [Client.CreateLeaseContainer] makes the lease container, and [Client.CreateLetterContainer]
// one for dead letters, if the credential is a key.
//
// The credential is an account key ([Key]) or an identity of Microsoft Entra ID
// ([Token]); [OpenString] takes a connection string. The same code speaks to
// changefeed's own server, where a container is pushed instead of polled ([Container.Wait]).
//
// # Requests
//
// Every request has a timeout and is repeated at most four times; retry.go has the
// table. A write whose reply is lost is never repeated, because it may have arrived,
// and a second try would then fail or, worse, succeed twice. The caller finds out, as
// the processor does. A long pause that the service asks for is returned, not waited
// for, because the processor knows what else there is to do. An [Error] has the
// service's own words, and errors.Is finds the errors of package feed in it.
//
// Reads go to the preferred regions and fail over to the next; writes go to the write
// region. The account is read at the start, every five minutes while requests are made,
// and after a region has failed. No goroutine runs between calls.
//
// # Caveats
//
// A page from Azure is eventually consistent, unless the account is strongly
// consistent. The feed of an account with several write regions takes no start time.
// All versions and deletes needs the container's changeFeedPolicy. Azure has no exact
// count of pending changes, so the estimator reports distances in LSNs.
package cosmos
