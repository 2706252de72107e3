// Package samples makes labels and envelopes for unit tests.
package samples

import (
	"fmt"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// Labels returns a set of labels. pairs has keys and values in turn.
func Labels(pairs ...string) wire.Labels {
	texts := make([][]byte, len(pairs))
	for i, text := range pairs {
		texts[i] = []byte(text)
	}
	set, err := wire.MakeLabels(texts)
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
