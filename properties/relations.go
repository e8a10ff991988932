package properties

import "github.com/shatter-gpu/shatter/harness/executor"

// Relations returns every relation between runs, in the order in which they are asked.
func Relations() []executor.Relation {
	return []executor.Relation{
		Repeatable, NamesDoNotMatter, FreeOrder, AllocThenFree, EmptyTwice, StartsAnew, ServesWhenEmpty, GivesBack, StreamsApart, PoolsApart,
		SameProgramView, WrongCalls, BoundedAlone, AgreesWithReference,
	}
}
