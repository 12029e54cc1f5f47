package resolved

import (
	"encoding/json"
	"errors"
	"reflect"
)

// FileRef is an input file by path and content. Without a path it is written as the
// digest alone, as in the text that identifies a point.
type FileRef struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // hex
}

// Content is the reference without its path, for identity.
func (f FileRef) Content() FileRef { return FileRef{SHA256: f.SHA256} }

type plainFile FileRef

func (f FileRef) MarshalJSON() ([]byte, error) {
	if f.Path == "" {
		return json.Marshal(f.SHA256)
	}
	return json.Marshal(plainFile(f))
}

func (f *FileRef) UnmarshalJSON(text []byte) error {
	if isString(text) {
		return json.Unmarshal(text, &f.SHA256)
	}
	return json.Unmarshal(text, (*plainFile)(f))
}

// ModelRef is a model by name or, for a local folder, by its config.json.
type ModelRef struct {
	Name   string
	Config FileRef // zero: a name
}

func (m ModelRef) MarshalJSON() ([]byte, error) {
	if m.Config != (FileRef{}) {
		return json.Marshal(m.Config)
	}
	return json.Marshal(m.Name)
}

func (m *ModelRef) UnmarshalJSON(text []byte) error {
	if isString(text) {
		return json.Unmarshal(text, &m.Name)
	}
	return json.Unmarshal(text, &m.Config)
}

// Bytes is a number of bytes, or the word auto: those of the model.
type Bytes struct {
	Auto  bool
	Value float64
}

const auto = "auto"

func (b Bytes) MarshalJSON() ([]byte, error) {
	if b.Auto {
		return json.Marshal(auto)
	}
	return json.Marshal(b.Value)
}

func (b *Bytes) UnmarshalJSON(text []byte) error {
	if isString(text) {
		var word string
		if err := json.Unmarshal(text, &word); err != nil {
			return err
		}
		if word != auto {
			return errors.New("must be auto or a number of bytes")
		}
		b.Auto = true
		return nil
	}
	return json.Unmarshal(text, &b.Value)
}

// TimingConfig is that of an external provider: a profile, or a hardware model.
type TimingConfig struct {
	Profile  FileRef // zero: none
	Hardware *HardwareModel
}

// profileConfig is the configuration of the provider dynamo_profile.
type profileConfig struct {
	Path FileRef `json:"path"`
}

func (c TimingConfig) MarshalJSON() ([]byte, error) {
	if c.Hardware != nil {
		return json.Marshal(c.Hardware)
	}
	return json.Marshal(profileConfig{c.Profile})
}

func (c *TimingConfig) UnmarshalJSON(text []byte) error {
	if c.shape(text) == reflect.TypeFor[profileConfig]() {
		var p profileConfig
		err := json.Unmarshal(text, &p)
		c.Profile = p.Path
		return err
	}
	c.Hardware = new(HardwareModel)
	return json.Unmarshal(text, c.Hardware)
}

type plainTransfer KVTransfer

func (t KVTransfer) MarshalJSON() ([]byte, error) {
	if t == (KVTransfer{}) {
		return []byte("null"), nil
	}
	return json.Marshal(plainTransfer(t))
}

func (w Workload) MarshalJSON() ([]byte, error) {
	if w.Synthetic != nil {
		return json.Marshal(w.Synthetic)
	}
	return json.Marshal(w.Trace)
}

func (w *Workload) UnmarshalJSON(text []byte) error {
	if w.shape(text) == reflect.TypeFor[Synthetic]() {
		w.Synthetic = new(Synthetic)
		return json.Unmarshal(text, w.Synthetic)
	}
	w.Trace = new(Trace)
	return json.Unmarshal(text, w.Trace)
}

func isString(text []byte) bool { return len(text) > 0 && text[0] == '"' }
