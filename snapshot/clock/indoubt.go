package clock

import "time"

// Orderly: if the next watch is answered within this time after the end of the last, nothing is in
// doubt. Nobody can stop etcd, restore it and start it again in less.
const Orderly = 10 * time.Second

// InDoubt reports whether the server that answers a watch now may have another past than the one
// that answered the list or watch before. That one ended normally, at over.
func InDoubt(over, now time.Time) bool { return Age(over, now) > Orderly }
