package clock

import "time"

// Orderly is how long it may take at most from the end of a watch at its timeout until the next watch
// is answered, so that both see one history: nobody can stop etcd, restore a backup and start it again
// in less.
const Orderly = 10 * time.Second

// InDoubt reports whether etcd may have been restored between the end of a watch at its timeout, at
// over, and now, when the next watch is answered. Then the history has to be compared.
func InDoubt(over, now time.Time) bool { return Age(over, now) > Orderly }
