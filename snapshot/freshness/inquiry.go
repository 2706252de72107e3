package freshness

import "time"

// Inquiry is a question to the upstream how far it is, or for its newest state.
type Inquiry struct {
	// Number counts a collection's inquiries. It says which requests came before one, whatever
	// clocks do.
	Number uint64
	// Asked is when it was sent.
	Asked time.Time
}
