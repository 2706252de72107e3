package proxy

import "time"

// LeastSettle is the shortest time for which all has to be forwarded after the API servers behind the upstream changed
// (Config.Settle in package snapshot).
//
// While two versions serve, that time begins anew whenever [Servers] has looked at them. It may not be over before the next look
// has told, the latest there is: else something is loaded from one version, and goes on at the other. So it is the longest
// time between two that tell, and a second for the process to get to it, in whole seconds. each: they are asked one by one
// ([Servers.Ask]).
func LeastSettle(each bool) time.Duration {
	longest := versionAgain + versionAgain/5 + versionTimeout
	if each {
		// One that fails for the first time tells nothing, and is repeated soon.
		longest = endpointEvery + endpointEvery/5 + endpointTimeout + endpointAgain + endpointTimeout
	}
	return (longest + 2*time.Second - 1).Truncate(time.Second)
}
