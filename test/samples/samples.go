// Package samples makes labels and envelopes for unit tests.
package samples

import (
	"fmt"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Labels returns a set of labels. pairs has keys and values in turn.
func Labels(pairs ...string) wire.Labels {
	var labels [][2][]byte
	for i := 0; i < len(pairs); i += 2 {
		labels = append(labels, [2][]byte{[]byte(pairs[i]), []byte(pairs[i+1])})
	}
	set, err := wire.MakeLabels(labels)
	if err != nil {
		panic(err)
	}
	return set
}

// Envelope returns the JSON envelope of a type whose objects can be selected by fields.
func Envelope(kind, apiVersion string, fields ...wire.Field) *wire.Envelope {
	list := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`+"\n", kind, apiVersion)
	envelope, err := wire.LearnEnvelope(wire.EncodingOf(media.JSON), list, media.JSONType, "")
	if err != nil {
		panic(err)
	}
	envelope.Paths = wire.NewFieldPaths(fields)
	return envelope
}
