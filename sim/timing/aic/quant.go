package aic

import "strings"

// quantMode is a number format: bytes an element, compute class relative to
// bfloat16, and the peak that bounds it (spec aic-perfmodel 2.4).
type quantMode struct {
	bytes, class float64
	flops        string
}

var gemmModes = map[string]quantMode{
	"bfloat16":    {2, 1, "bfloat16"},
	"int8_wo":     {1, 1, "bfloat16"},
	"int4_wo":     {0.5, 1, "bfloat16"},
	"fp8":         {1, 2, "fp8"},
	"fp8_static":  {1, 2, "fp8"},
	"fp8_block":   {1, 2, "fp8"},
	"fp8_ootb":    {1, 2, "fp8"},
	"sq":          {1, 2, "int8"},
	"nvfp4":       {0.5625, 4, "fp4"},
	"nvfp4_wo":    {0.5625, 1, "bfloat16"},
	"w4a16_nvfp4": {0.5625, 1, "bfloat16"},
}

var moeModes = map[string]quantMode{
	"bfloat16":                {2, 1, "bfloat16"},
	"fp8":                     {1, 2, "fp8"},
	"fp8_block":               {1, 2, "fp8"},
	"int4_wo":                 {0.5, 1, "bfloat16"},
	"w4a16_mxfp4":             {0.5, 1, "bfloat16"},
	"w4a16_mxfp4_cutlass":     {0.5, 1, "bfloat16"},
	"w4afp8":                  {0.5, 2, "fp8"},
	"w4a8_mxfp4_mxfp8":        {0.5, 2, "fp8"},
	"w4a8_mxfp4_mxfp8_trtllm": {0.5, 2, "fp8"},
	"nvfp4":                   {0.5625, 4, "fp4"},
	"nvfp4_wo":                {0.5625, 1, "bfloat16"},
	"w4a16_nvfp4":             {0.5625, 1, "bfloat16"},
}

var fmhaModes = map[string]quantMode{
	"bfloat16":  {2, 1, "bfloat16"},
	"fp8":       {1, 2, "fp8"},
	"fp8_block": {1, 2, "fp8"},
}

// kvBytes is the size of a KV cache element.
var kvBytes = map[string]float64{"bfloat16": 2, "int8": 1, "fp8": 1}

var commModes = map[string]float64{"half": 2, "int8": 1, "fp8": 1}

// decodeClass names the peak that bounds decode attention: fp8 when the cache is fp8
// and the chip can (spec aic-perfmodel 5.3).
func decodeClass(s *System, kv string) string {
	if kv == "fp8" && s.sm >= 89 {
		return "fp8"
	}
	return "bfloat16"
}

// quant names the number formats of a model.
type quant struct {
	gemm, moe, fmha, kv, comm string
	// set by the user rather than taken from the checkpoint
	gemmSet bool
}

// dtype normalises a user's format name; empty means "from the checkpoint".
func dtype(s string) string {
	s = strings.TrimSpace(s)
	switch s {
	case "auto", "none", "null":
		return ""
	case "int4":
		return "int4_wo"
	}
	return s
}

func checkMode[V any](what, name string, modes map[string]V) error {
	if _, ok := modes[name]; ok {
		return nil
	}
	known := make([]string, 0, len(modes))
	for k := range modes {
		known = append(known, k)
	}
	return classed(ErrConfig, "%s mode %q is unknown; known: %s", what, name, sortedWords(known))
}
