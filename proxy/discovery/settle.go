package discovery

import "time"

const (
	// SlowestNews is how long, at most, the API servers behind one address can be of another
	// version before that is heard of, while they answer: the answer that is on its way may be from
	// before.
	SlowestNews = versionTimeout + versionEvery + versionEvery/5 + versionTimeout
	// SlowestLook is the longest time between two looks at /version of API servers behind one
	// address, while they tell of more than one version.
	SlowestLook = versionAgain + versionAgain/5 + versionTimeout
)

// LeastSettle is the shortest time for which all has to be forwarded after the API servers behind
// the upstream changed ([Config].Settle), in whole seconds.
//
// While two versions serve, that time begins anew with every look at them. It may not be over
// before the next look has told, else something is loaded from one version, and goes on at the
// other. So it is the longest time between two looks that tell, which depends on who looks
// ([SlowestLook]), and a second for the process to get to it.
func LeastSettle(slowest time.Duration) time.Duration {
	return (slowest + 2*time.Second - 1).Truncate(time.Second)
}
